//! The names in a struct or an enum of C code that has been preprocessed. It reads the C of our headers and of the
//! kernel's UAPI.

/// Returns the fields of a struct; those of an anonymous struct or union in it are its own, as C has it. Bit-fields are
/// left out: they have no offset in bytes.
pub fn field_names(code: &str, structure: &str) -> Vec<String> {
    let body = body(code, "struct", structure);
    let mut names = Vec::new();
    add_fields(body, &mut names);
    assert!(!names.is_empty(), "struct {structure} has no fields");
    names
}

/// Returns the names of an enum.
pub fn enumerator_names(code: &str, name: &str) -> Vec<String> {
    let names = body(code, "enum", name).split(',').map(|one| one.split('=').next().unwrap_or_default().trim());
    names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// What stands between the braces of `KIND NAME { ... }`.
fn body<'a>(code: &'a str, kind: &str, name: &str) -> &'a str {
    let mut rest = code;
    while let Some(at) = rest.find(kind) {
        rest = &rest[at + kind.len()..];
        let Some(after) = rest.trim_start().strip_prefix(name) else { continue };
        if let Some(after) = after.trim_start().strip_prefix('{') {
            return &after[..closing(after)];
        }
    }
    panic!("the header has no {kind} {name}")
}

/// Where the brace or parenthesis is closed that was opened just before the text.
fn closing(text: &str) -> usize {
    let mut depth = 1;
    for (at, letter) in text.char_indices() {
        depth += match letter {
            '{' | '(' => 1,
            '}' | ')' => -1,
            _ => 0,
        };
        if depth == 0 {
            return at;
        }
    }
    panic!("a brace that is never closed: {text}")
}

fn add_fields(mut body: &str, names: &mut Vec<String>) {
    loop {
        body = body.trim_start();
        let Some(end) = body.find([';', '{']) else {
            assert!(body.is_empty(), "not a declaration: {body}");
            return;
        };
        if body[end..].starts_with(';') {
            add_declared(&body[..end], names);
            body = &body[end + 1..];
            continue;
        }
        let inner = &body[end + 1..];
        let close = closing(inner);
        let after = &inner[close + 1..];
        let semicolon = after.find(';').expect("a struct or union that ends with a semicolon");
        match after[..semicolon].trim() {
            "" => add_fields(&inner[..close], names),
            declarators => add_declared(declarators, names),
        }
        body = &after[semicolon + 1..];
    }
}

/// Adds the names of a declaration such as `u32 a, b[4], *c` or `void (*d)(int, long)`.
fn add_declared(declaration: &str, names: &mut Vec<String>) {
    let is_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    if let Some(pointer) = declaration.find("(*") {
        let rest = &declaration[pointer + 2..];
        names.push(rest[..rest.find(')').expect("a function pointer has a name")].trim().to_owned());
        return;
    }
    for declarator in declaration.split(',').filter(|declarator| !declarator.contains(':')) {
        let declarator = declarator.split('[').next().unwrap_or_default().trim_end();
        let begin = declarator.rfind(|letter| !is_word(letter)).map_or(0, |before| before + 1);
        assert!(begin < declarator.len(), "a declaration that is not understood: {declaration}");
        names.push(declarator[begin..].to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = "
        struct other_thing { int x; };
        struct thing;
        enum mode { FIRST, SECOND = 7, THIRD, };
        struct thing {
            unsigned long long a, b[(4U << 20)][2];
            unsigned char low_bits : 4, high_bits : 4;
            const char *name;
            struct other_thing in, *out;
            void (*call)(struct thing *, int);
            union { unsigned bytes; struct { short low, high; }; };
            struct { int inner; } named;
        };
    ";

    #[test]
    fn every_field_is_found_in_its_order() {
        let fields = ["a", "b", "name", "in", "out", "call", "bytes", "low", "high", "named"];
        assert_eq!(field_names(CODE, "thing"), fields);
        assert_eq!(field_names(CODE, "other_thing"), ["x"]);
    }

    #[test]
    fn every_name_of_an_enum_is_found_in_its_order() {
        assert_eq!(enumerator_names(CODE, "mode"), ["FIRST", "SECOND", "THIRD"]);
    }
}
