//! Makes recorded calls of a control again (cc/call.h), with the C compiled for this machine. It has to decide here
//! what it decided where it was recorded, to the last bit.

use std::collections::HashMap;
use std::fmt;
use std::mem::size_of;

use serde::Serialize;

use crate::{Connection, Control, Report, Sample, Socket};

/// struct cc_call: one half of a recorded call. The first half has what the control was given, the second what it
/// decided.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Record {
    socket: u64,
    number: u32,
    kind: u32,
    value: u64,
    conn: Connection,
    sample: Sample,
    report: Report,
}

/// The names of enum cc_call_kind, by number. The last kind, the return, is `RETURN`.
const KINDS: [&str; 10] =
    ["init", "on_ack", "on_acked", "on_rtt", "set_state", "on_event", "ssthresh", "undo_cwnd", "on_send", "on_lost"];
const RETURN: u32 = KINDS.len() as u32;

impl Record {
    pub const BYTES: usize = size_of::<Record>();

    /// Reads a record. None if the bytes are not as many as a record has.
    pub fn read(bytes: &[u8]) -> Option<Record> {
        // SAFETY: the struct has only integers, so every pattern of bits is valid; the length is checked.
        (bytes.len() == Self::BYTES).then(|| unsafe { bytes.as_ptr().cast::<Record>().read_unaligned() })
    }
}

/// A call that is decided otherwise on this machine than in the recording.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Number of the call among the socket's calls, from 0.
    pub call: u32,
    pub kind: &'static str,
    /// What differs: its name, its recorded value, and its value here.
    pub values: Vec<(&'static str, String, String)>,
}

/// What a replay has found so far.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Outcome {
    pub sockets: u64,
    pub calls: u64,
    /// How many of the calls were for ACKs.
    pub acks: u64,
    pub differences: u64,
    pub first: Option<Difference>,
    /// Number of records that the recording lacks. A socket is left out from its first gap on.
    pub lost: u64,
}

struct Open {
    socket: Socket,
    report: Report,
    next: u32,
    /// A call whose return has not been read yet.
    called: Option<Record>,
}

/// The replay of one control, with the parameters that `Control::set` has set.
pub struct Replay {
    control: Control,
    open: HashMap<u64, Open>,
    outcome: Outcome,
}

impl Replay {
    pub fn new(control: Control) -> Replay {
        Replay { control, open: HashMap::new(), outcome: Outcome::default() }
    }

    pub fn outcome(&self) -> &Outcome {
        &self.outcome
    }

    /// Takes the next record, in the order in which they were made. Sockets older than the recording are left out.
    pub fn feed(&mut self, record: &Record) {
        if record.kind == 0 && record.number == 0 {
            let socket = Socket::blank(self.control);
            self.open.insert(record.socket, Open { socket, report: Report::default(), next: 0, called: None });
            self.outcome.sockets += 1;
        }
        let Some(open) = self.open.get_mut(&record.socket) else { return };
        if record.number != open.next {
            self.outcome.lost += u64::from(record.number.wrapping_sub(open.next));
            self.open.remove(&record.socket);
            return;
        }
        open.next = open.next.wrapping_add(1);
        if record.kind != RETURN {
            open.called = Some(*record);
            return;
        }
        let Some(called) = open.called.take() else { return };
        let differing = again(open, &called, record);
        self.outcome.calls += 1;
        self.outcome.acks += u64::from(matches!(called.kind, 1 | 2));
        if !differing.is_empty() {
            self.outcome.differences += 1;
            let kind = KINDS.get(called.kind as usize).copied().unwrap_or("unknown");
            // Each call has two records.
            self.outcome.first.get_or_insert(Difference { call: record.number / 2, kind, values: differing });
        }
    }
}

/// Makes a call again, and returns what differs from its recording.
fn again(open: &mut Open, called: &Record, returned: &Record) -> Vec<(&'static str, String, String)> {
    let mut conn = called.conn;
    // The random numbers of a call are recorded with its return.
    conn.random = returned.conn.random;
    let value = called.value as u32;
    let mut answer = 0;
    match called.kind {
        0 => open.socket.init(&mut conn),
        1 => open.socket.on_ack(&mut conn, &called.sample),
        2 => open.socket.on_acked(&mut conn, value),
        3 => open.socket.on_rtt(&mut conn, value),
        4 => open.socket.set_state(&mut conn, value as u8),
        5 => open.socket.on_event(&mut conn, value),
        6 => answer = open.socket.ssthresh(&mut conn),
        7 => answer = open.socket.undo_cwnd(&mut conn),
        8 => open.socket.on_send(&mut conn),
        9 => open.socket.on_lost(&mut conn, &called.sample),
        _ => {}
    }
    if matches!(called.kind, 1 | 2) {
        open.report.acks += 1;
        open.socket.add_to_report(&conn, &mut open.report);
    }
    let mut differing = Vec::new();
    let mut compare = |name, recorded: &dyn fmt::Debug, here: &dyn fmt::Debug| {
        let (recorded, here) = (format!("{recorded:?}"), format!("{here:?}"));
        if recorded != here {
            differing.push((name, recorded, here));
        }
    };
    if conn != returned.conn || open.report != returned.report || u64::from(answer) != returned.value {
        compare("answer", &returned.value, &u64::from(answer));
        let (theirs, ours) = (&returned.conn, &conn);
        compare("cwnd", &theirs.cwnd, &ours.cwnd);
        compare("pacing_rate", &theirs.pacing_rate, &ours.pacing_rate);
        compare("ssthresh", &theirs.ssthresh, &ours.ssthresh);
        compare("connection", theirs, ours);
        compare("report", &returned.report, &open.report);
    }
    differing
}

#[cfg(test)]
mod tests {
    use brobust_layout::{assert_same_layout, headers};

    use super::*;

    #[test]
    fn a_record_is_what_c_records() {
        assert_same_layout!(headers::CC, "cc_call", Record { socket, number, kind, value, conn, sample, report });
        let name = |kind: &str| format!("CC_CALL_{}", kind.to_uppercase());
        let ours: Vec<_> = KINDS.into_iter().chain(["return"]).map(name).zip(0..=u64::from(RETURN)).collect();
        assert_eq!(ours, headers::CC.enumerators("cc_call_kind"));
    }

    fn record(kind: u32, number: u32, conn: Connection) -> Record {
        Record { socket: 7, number, kind, value: 0, conn, sample: Sample::default(), report: Report::default() }
    }

    /// A recording of Reno made by hand; with `tampered`, one that decides otherwise in one call.
    fn reno(tampered: bool) -> Vec<Record> {
        let control = Control::find("brb_reno").unwrap();
        let start = Connection { cwnd: 10, cwnd_clamp: 1000, ssthresh: 100, is_cwnd_limited: 1, ..Default::default() };
        let mut conn = start;
        let mut socket = Socket::new(control, &mut conn);
        let mut report = Report::default();
        let mut records = vec![record(0, 0, start), record(RETURN, 1, conn)];
        for number in 0..50 {
            let acked = 1 + u64::from(number % 3);
            records.push(Record { value: acked, report, ..record(2, 2 + 2 * number, conn) });
            socket.on_acked(&mut conn, acked as u32);
            report.acks += 1;
            socket.add_to_report(&conn, &mut report);
            if tampered && number == 20 {
                conn.cwnd += 1;
            }
            records.push(Record { report, ..record(RETURN, 3 + 2 * number, conn) });
        }
        records
    }

    fn replay(records: &[Record]) -> Outcome {
        let mut replay = Replay::new(Control::find("brb_reno").unwrap());
        records.iter().for_each(|record| replay.feed(record));
        replay.outcome().clone()
    }

    #[test]
    fn the_same_calls_decide_the_same() {
        let outcome = replay(&reno(false));
        assert_eq!((outcome.sockets, outcome.calls, outcome.acks), (1, 51, 50));
        assert_eq!((outcome.differences, outcome.lost), (0, 0));
    }

    #[test]
    fn the_first_difference_names_the_call_and_both_values() {
        let outcome = replay(&reno(true));
        let first = outcome.first.unwrap();
        assert_eq!((first.call, first.kind), (21, "on_acked"));
        assert_eq!(first.values[0].0, "cwnd");
        let [recorded, here] = [&first.values[0].1, &first.values[0].2].map(|value| value.parse::<u32>().unwrap());
        assert_eq!(recorded, here + 1);
        assert!(outcome.differences >= 1);
    }

    #[test]
    fn lost_records_are_counted_and_end_the_socket() {
        let mut records = reno(false);
        records.drain(10..14);
        let outcome = replay(&records);
        assert_eq!((outcome.lost, outcome.calls, outcome.differences), (4, 5, 0));
    }

    #[test]
    fn sockets_older_than_the_recording_are_left_out() {
        let outcome = replay(&reno(false)[2..]);
        assert_eq!((outcome.sockets, outcome.calls), (0, 0));
    }

    #[test]
    fn half_a_record_is_none() {
        assert!(Record::read(&[0; 8]).is_none());
        assert!(Record::read(&vec![0; Record::BYTES]).is_some());
    }
}
