//! Programs in the kernels' user space, in place of their own source and sink: one at each end of every flow.
//!
//! The network tells whose connections are whose by ports: a program of flow n waits at SERVER_PORT + n, or uses
//! FIRST_PORT + n at the sender, or any if its sender has no other flow.
use crate::ports::{FIRST_PORT, SERVER_PORT};
use crate::scenario::{Flow, Programs, Scenario};
use crate::shared::{self, WORDS_BYTES};
use crate::topology::Topology;

/// The placeholder of the port that a flow's data comes from. A program that has others besides names it.
const SENDER_PORT: &str = "{sender_port}";
/// The placeholder of the port at which a flow's program waits.
const PORT: &str = "{port}";

/// A program that a node runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// Start in ns since the run's start. None: before the run.
    pub start: Option<u64>,
    /// Its path, and its arguments.
    pub words: Vec<String>,
    /// Number of the flow whose end it is.
    pub flow: usize,
}

/// Returns the programs of the flows that a node has to run.
pub fn programs(scenario: &Scenario, topology: Topology, node: usize) -> Vec<Program> {
    let Some(programs) = &scenario.programs else { return Vec::new() };
    let flows = scenario.flows.iter().enumerate();
    let at_receiver = node == topology.receiver();
    let words = if at_receiver { &programs.receiver } else { &programs.sender };
    let start: fn(&Flow) -> Option<u64> = match at_receiver == programs.sender_waits() {
        true => |flow| Some(flow.start),
        false => |_| None,
    };
    flows
        .filter(|(_, flow)| node == topology.receiver() || flow.sender == node)
        .map(|(number, flow)| Program {
            start: start(flow),
            words: filled_in(words, scenario, topology, number),
            flow: number,
        })
        .collect()
}

/// Returns a command with the values of a flow in place of its placeholders.
fn filled_in(words: &[String], scenario: &Scenario, topology: Topology, number: usize) -> Vec<String> {
    let flow = &scenario.flows[number];
    let address = |node| topology.ip_address(node).to_string();
    let seconds = flow.sends_for(scenario.duration) as f64 / 1e9;
    let values = [
        ("{receiver}", address(topology.receiver())),
        ("{sender}", address(flow.sender)),
        (PORT, (usize::from(SERVER_PORT) + number).to_string()),
        (SENDER_PORT, (usize::from(FIRST_PORT) + number).to_string()),
        ("{flow}", number.to_string()),
        ("{cc}", flow.cc.clone()),
        ("{seconds}", seconds.to_string()),
    ];
    let fill = |word: &String| values.iter().fold(word.clone(), |word, (name, value)| word.replace(name, value));
    words.iter().map(fill).collect()
}

/// Returns the program that ends when a node's programs listen, if they are those that wait: at the ports that their
/// command names, or anywhere.
pub fn watcher(scenario: &Scenario, topology: Topology, node: usize, programs: &[Program]) -> Option<Program> {
    let given = scenario.programs.as_ref()?;
    let waits = given.waits.as_ref().filter(|waits| waits.at_sender != (node == topology.receiver()))?;
    let command = if waits.at_sender { &given.sender } else { &given.receiver };
    let mut words = waits.watcher.clone();
    if command.iter().any(|word| word.contains(PORT)) {
        words.extend(programs.iter().map(|program| (usize::from(SERVER_PORT) + program.flow).to_string()));
    }
    (!programs.is_empty()).then_some(Program { start: None, words, flow: 0 })
}

/// Whether a flow's data is only what comes from its own port. Else it is all that its program sends.
pub fn names_its_port(programs: &Programs) -> bool {
    programs.sender.iter().any(|word| word.contains(SENDER_PORT))
}

/// Writes a program into the shared memory. `origin` is the start of the run on the kernel's clock.
pub fn describe(to: &mut shared::Program, program: &Program, environment: &[String], origin: u64) {
    to.start = program.start.map_or(0, |start| origin + start);
    (to.arguments, to.variables) = (program.words.len() as u32, environment.len() as u32);
    let words = program.words.iter().chain(environment).flat_map(|word| word.bytes().chain([0]));
    // A kernel refuses a program whose words have no room (find_words()).
    to.words.iter_mut().zip(words).for_each(|(to, byte)| *to = byte);
    if program.words.iter().chain(environment).map(|word| word.len() + 1).sum::<usize>() > WORDS_BYTES {
        to.arguments = u32::MAX;
    }
}

/// What a program printed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Printed {
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

/// Splits a kernel's console into what each of `count` programs printed and what the kernel itself did. Programs'
/// output stands there in pieces, each behind a line with the program's number, the descriptor and the piece's length
/// (programs.c).
pub fn split_console(console: &[u8], count: usize) -> (Vec<Printed>, String) {
    let mut printed = vec![Printed::default(); count];
    let mut kernel = Vec::new();
    let mut rest = console;
    while !rest.is_empty() {
        let end = rest.iter().position(|&byte| byte == b'\n').map_or(rest.len(), |end| end + 1);
        let (line, after) = rest.split_at(end);
        rest = after;
        let Some((number, descriptor, size)) = heading(line.strip_suffix(b"\n").unwrap_or(line)) else {
            kernel.extend_from_slice(line);
            continue;
        };
        let (text, after) = after.split_at(size.min(after.len()));
        if let Some(own) = printed.get_mut(number) {
            if descriptor == 2 { &mut own.stderr } else { &mut own.stdout }.extend_from_slice(text);
        }
        rest = after;
    }
    (printed, String::from_utf8_lossy(&kernel).into_owned())
}

/// Reads the line before a piece: the program's number, its descriptor, and the length of the piece in bytes.
fn heading(line: &[u8]) -> Option<(usize, usize, usize)> {
    let line = std::str::from_utf8(line).ok()?.strip_prefix("brobust program ")?;
    let (number, rest) = line.strip_suffix(" bytes")?.split_once(" output ")?;
    let (descriptor, size) = rest.split_once(": ")?;
    Some((number.parse().ok()?, descriptor.parse().ok()?, size.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn pieces_of_two_programs_are_put_together() {
        let console = b"Linux\n\nbrobust program 1 output 1: 4 bytes\n{\n\n1\nbrobust program 0 output 1: 2 bytes\nab[  1.0] kernel\n\
            \nbrobust program 1 output 1: 1 bytes\n}\nbrobust program 1 output 2: 2 bytes\noh\
            \nbrobust program 7 output 1: 1 bytes\nx\nbrobust program 0 output 1: 99 bytes\ncd";
        let (programs, kernel) = split_console(console, 2);
        let stdout: Vec<_> = programs.iter().map(|one| String::from_utf8_lossy(&one.stdout)).collect();
        assert_eq!(stdout, ["abcd", "{\n\n1}"]);
        assert_eq!((programs[0].stderr.len(), programs[1].stderr.as_slice()), (0, b"oh".as_slice()));
        assert_eq!(kernel.split_whitespace().collect::<Vec<_>>(), ["Linux", "[", "1.0]", "kernel"]);
    }

    #[test]
    fn the_end_that_waits_starts_first_and_is_watched_at_its_own_ports() {
        let seed = include_str!("../tests/seeds/scenario/plain.json");
        let with = |waits: serde_json::Value, sender: &str| {
            let mut scenario: serde_json::Value = serde_json::from_str(seed).unwrap();
            scenario["programs"] = serde_json::json!({
                "initrd": "i", "sender": ["/bin/a", sender], "receiver": ["/bin/b"], "environment": [],
                "linger": 0, "call": 1000, "poll": 20000, "waits": waits,
            });
            serde_json::from_value::<Scenario>(scenario).unwrap()
        };
        let watched_at = |scenario: &Scenario, node| {
            let topology = Topology::new(scenario);
            let programs = programs(scenario, topology, node);
            let watcher = watcher(scenario, topology, node, &programs);
            (programs[0].start, watcher.map(|watcher| watcher.words.join(" ")))
        };
        let as_ever = with(serde_json::Value::Null, "{port}");
        assert_eq!([watched_at(&as_ever, 0), watched_at(&as_ever, 1)], [(Some(0), None), (None, None)]);
        let at_sender = serde_json::json!({"at_sender": true, "watcher": ["/bin/w"]});
        let server = with(at_sender.clone(), "{port}");
        let watched = |words: &str| (None, Some(words.to_string()));
        assert_eq!([watched_at(&server, 0), watched_at(&server, 1)], [watched("/bin/w 5201"), (Some(0), None)]);
        assert_eq!(watched_at(&with(at_sender, "80"), 0), watched("/bin/w"));
    }

    #[test]
    fn words_that_do_not_fit_are_not_cut_off() {
        // SAFETY: plain integers.
        let mut shared: Box<shared::Program> = Box::new(unsafe { std::mem::zeroed() });
        let mut program = Program { start: Some(7), words: vec!["/bin/a".into(), "b c".into()], flow: 0 };
        describe(&mut shared, &program, &["X=1".into()], 100);
        assert_eq!((shared.start, shared.arguments, shared.variables), (107, 2, 1));
        assert_eq!(&shared.words[..15], b"/bin/a\0b c\0X=1\0");
        program.words.push("y".repeat(WORDS_BYTES));
        describe(&mut shared, &program, &[], 0);
        assert_eq!(shared.arguments, u32::MAX);
    }

    proptest! {
        #[test]
        fn no_console_is_believed(
            bytes in "(\nbrobust program [0-9]{1,30} output [0-9]{1,9}: [0-9]{1,30} bytes\n[a-z\n]{0,9}){0,5}"
        ) {
            let _ = split_console(bytes.as_bytes(), 3);
        }
    }
}
