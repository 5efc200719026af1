//! The names in a struct or an enum of C, as clang tells them.

/// Returns the fields of a struct from clang's dump of all layouts; those of an anonymous struct or union in it are its
/// own, as C has it. Bit-fields are left out: they have no offset in bytes.
pub fn field_names(dump: &str, structure: &str) -> Vec<String> {
    let begin = dump.split_once(&format!(" 0 | struct {structure}\n"));
    let (_, fields) = begin.unwrap_or_else(|| panic!("the header has no struct {structure}"));
    // Those of a field, which are indented more, are not the struct's.
    let (mut names, mut max_depth) = (Vec::new(), usize::MAX);
    for line in fields.lines().take_while(|line| !line.contains(" | [sizeof=")) {
        let (offset, field) = line.split_once('|').expect("an offset and a field");
        let depth = field.len() - field.trim_start().len();
        if depth > max_depth {
            continue;
        }
        let is_anonymous = field.trim_end().ends_with(')');
        max_depth = if is_anonymous { usize::MAX } else { depth };
        let is_bit_field = offset.contains(':');
        if !is_anonymous && !is_bit_field {
            names.extend(field.rsplit(' ').next().map(str::to_owned));
        }
    }
    names
}

/// Returns the names of an enum in C code that has been preprocessed.
pub fn enumerator_names(code: &str, name: &str) -> Vec<String> {
    let body = code.split_once(&format!("enum {name} {{")).and_then(|(_, after)| after.split_once('}'));
    let (body, _) = body.unwrap_or_else(|| panic!("the header has no enum {name}"));
    let names = body.split(',').map(|one| one.split('=').next().unwrap_or_default().trim());
    names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
}
