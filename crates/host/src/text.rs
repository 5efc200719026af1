//! Names that come from somebody else, and numbers for people.

use std::fs;
use std::io;
use std::path::Path;

/// Reads a file of /proc. Anybody may give a process, a cgroup or a mount point a name that is not UTF-8: what is not is
/// replaced, and hides nothing else.
pub fn read_proc(file: impl AsRef<Path>) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&fs::read(file)?).into_owned())
}

/// Returns the text with control characters and invisible ones escaped: a terminal would act on escape sequences.
pub fn printable(text: &str) -> String {
    text.chars().map(|letter| if is_harmless(letter) { letter.to_string() } else { escaped(letter) }).collect()
}

/// Returns JSON with the same letters escaped as JSON does it, so that it means the same. Control characters below 0x20
/// serde has escaped; others, which a terminal acts on, too, stand in its texts as they are.
pub fn printable_json(json: &str) -> String {
    let mut shown = String::with_capacity(json.len());
    for letter in json.chars() {
        match is_harmless(letter) {
            true => shown.push(letter),
            false => letter.encode_utf16(&mut [0; 2]).iter().for_each(|unit| shown += &format!("\\u{unit:04x}")),
        }
    }
    shown
}

fn is_harmless(letter: char) -> bool {
    // Besides control characters, those of category Cf that change the direction of text or are invisible.
    let is_format = matches!(letter, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}');
    !letter.is_control() && !is_format
}

fn escaped(letter: char) -> String {
    match u32::from(letter) {
        code @ 0..=0xff => format!("\\x{code:02x}"),
        code @ 0x100..=0xffff => format!("\\u{code:04x}"),
        code => format!("\\U{code:08x}"),
    }
}

/// Returns a number with at most so many significant digits, and no trailing zeros: `0.25`, `33.3333`.
pub fn general(number: f64, digits: usize) -> String {
    let magnitude = if number == 0.0 { 0 } else { number.abs().log10().floor() as i32 };
    let decimals = usize::try_from(digits as i32 - 1 - magnitude).unwrap_or(0);
    let text = format!("{number:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::{general, printable, printable_json};

    #[test]
    fn numbers_have_no_more_digits_than_they_need() {
        let cases = [(0.25, "0.25"), (100.0 / 3.0, "33.3333"), (2.0, "2"), (0.0, "0"), (1.5e6, "1500000")];
        for (number, text) in cases {
            assert_eq!(general(number, 6), text);
        }
    }

    #[test]
    fn escapes_what_a_terminal_would_act_on() {
        assert_eq!(printable("CPU 0/KVM é"), "CPU 0/KVM é");
        assert_eq!(printable("a\x1b[2J\u{202e}b"), "a\\x1b[2J\\u202eb");
    }

    #[test]
    fn json_means_the_same_without_what_a_terminal_would_act_on() {
        // CSI as one letter of Latin-1, the end of a device control string, text that runs backwards, a hidden letter.
        let name = "pod\u{9b}2J\u{7f}\u{9c}\u{202e}é\u{e0041}";
        let text = serde_json::to_string(name).expect("a text");
        let shown = printable_json(&text);
        assert_eq!(shown, "\"pod\\u009b2J\\u007f\\u009c\\u202eé\\udb40\\udc41\"");
        assert_eq!(serde_json::from_str::<String>(&shown).expect("JSON"), name);
        assert_eq!(printable_json("{\"a\":[1,\"b c\"]}"), "{\"a\":[1,\"b c\"]}");
    }
}
