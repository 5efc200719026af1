//! The compiled BPF objects, and what their BTF says about them.

use std::ffi::OsStr;

use libbpf_rs::btf::types::{DataSec, Enum, EnumMember, Int, MemberAttr, Struct, Var};
use libbpf_rs::btf::{Btf, BtfType};
use libbpf_rs::HasSize;

use crate::{Refusal, Result};

/// The name of each control and its object file, written by build.rs. The name is that of the source file, of the
/// struct_ops map, and of the congestion control.
static OBJECTS: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/objects.rs"));

/// Returns the names of the controls that can be loaded.
pub fn names() -> impl Iterator<Item = &'static str> {
    OBJECTS.iter().map(|(name, _)| *name)
}

/// Finds a control's name and object; refuses what is none of our controls, whatever the host has.
pub fn find(name: &str) -> Result<&'static (&'static str, &'static [u8])> {
    OBJECTS.iter().find(|(known, _)| *known == name).ok_or_else(|| unknown(name))
}

fn unknown(name: &str) -> Refusal {
    Refusal::Unknown { name: name.to_owned(), known: names().collect::<Vec<_>>().join(", ") }
}

pub struct Object {
    pub name: &'static str,
    pub bytes: &'static [u8],
    btf: Btf<'static>,
}

/// A constant of the object, or a number in a struct of its own; the name of one in an inner struct is the path to it,
/// `kernel.cwnd`.
#[derive(Debug, Clone)]
pub struct Field {
    pub name: String,
    /// Bytes from the beginning of the image of .rodata, or of the outermost struct.
    pub offset: usize,
    pub size: usize,
}

impl Object {
    pub fn find(name: &str) -> Result<Object> {
        let (name, bytes) = find(name)?;
        let btf = Btf::from_raw(name, bytes).ok().flatten().ok_or_else(|| unknown(name))?;
        Ok(Object { name, bytes, btf })
    }

    /// Returns the fields of a kernel structure that the object reads; none if it does not read the structure.
    pub fn fields_used(&self, structure: &str) -> Vec<String> {
        let Some(found) = self.btf.type_by_name::<Struct>(structure) else { return Vec::new() };
        found.iter().filter_map(|member| Some(member.name?.to_str()?.to_owned())).collect()
    }

    /// Returns the place of a field in a structure, in bytes from its beginning.
    pub fn offset_of(&self, structure: &str, field: &str) -> Option<usize> {
        let found = self.btf.type_by_name::<Struct>(structure)?;
        let member = found.iter().find(|member| member.name == Some(OsStr::new(field)))?;
        match member.attr {
            MemberAttr::Normal { offset } => Some(offset as usize / 8),
            MemberAttr::BitField { .. } => None,
        }
    }

    /// Returns the numbers in a structure of the object's own, those of inner structures too; none if there is no such
    /// structure.
    pub fn fields(&self, structure: &str) -> Vec<Field> {
        let mut fields = Vec::new();
        if let Some(found) = self.btf.type_by_name::<Struct>(structure) {
            self.add_fields(&found, "", 0, &mut fields);
        }
        fields
    }

    fn add_fields(&self, structure: &Struct, prefix: &str, base: usize, fields: &mut Vec<Field>) {
        for member in structure.iter() {
            let (Some(name), MemberAttr::Normal { offset }) = (member.name.and_then(OsStr::to_str), member.attr) else {
                continue;
            };
            let (name, offset) = (format!("{prefix}{name}"), base + offset as usize / 8);
            let Some(ty) = self.btf.type_by_id::<BtfType>(member.ty).map(|ty| ty.skip_mods_and_typedefs()) else {
                continue;
            };
            if let Ok(number) = Int::try_from(ty) {
                fields.push(Field { name, offset, size: usize::from(number.bits) / 8 });
            } else if let Ok(number) = Enum::try_from(ty) {
                fields.push(Field { name, offset, size: number.size() });
            } else if let Ok(inner) = Struct::try_from(ty) {
                self.add_fields(&inner, &format!("{name}."), offset, fields);
            }
        }
    }

    /// Returns the names of an enum that the object uses, and their numbers.
    pub fn enumerators(&self, name: &str) -> Vec<(String, u64)> {
        let Some(found) = self.btf.type_by_name::<Enum>(name) else { return Vec::new() };
        let pair = |member: EnumMember| Some((member.name?.to_str()?.to_owned(), u64::try_from(member.value).ok()?));
        found.iter().filter_map(pair).collect()
    }

    pub fn constant(&self, name: &str) -> Option<Field> {
        let rodata = self.btf.type_by_name::<DataSec>(".rodata")?;
        let found = rodata.iter().find(|variable| {
            let variable: Option<Var> = self.btf.type_by_id(variable.ty);
            variable.is_some_and(|variable| variable.name() == Some(OsStr::new(name)))
        })?;
        Some(Field { name: name.to_owned(), offset: found.offset as usize, size: found.size })
    }
}

#[cfg(test)]
mod tests {
    use libbpf_rs::btf::types::Func;

    use super::*;

    #[test]
    fn who_hears_of_events_hears_of_the_start_of_sending_on_linux_7_1_too() {
        let mut hear = 0;
        for object in names().map(|name| Object::find(name).unwrap()) {
            let has = |program: &str| object.btf.type_by_name::<Func>(program).is_some();
            assert_eq!(has("on_cwnd_event"), has("on_cwnd_event_tx_start"), "{}", object.name);
            hear += usize::from(has("on_cwnd_event"));
        }
        assert!(hear > 0);
    }

    #[test]
    fn every_control_has_a_name_that_the_kernel_takes() {
        assert!(names().any(|name| name == "bbr_robust"));
        for name in names() {
            assert!(name.len() <= 15, "{name} is longer than TCP_CA_NAME_MAX - 1");
        }
    }

    #[test]
    fn an_object_tells_what_it_needs() {
        let object = Object::find("bbr_robust").unwrap();
        let fields = object.fields_used("bbr");
        assert!(fields.contains(&"min_rtt_us".to_owned()), "{fields:?}");
        assert!(object.fields_used("no_such_struct").is_empty());
        assert_eq!(object.constant("cong_control_has_ack").unwrap().size, 1);
        assert!(object.constant("no_such_constant").is_none());
    }

    #[test]
    fn an_unknown_name_is_refused_with_those_that_exist() {
        let refusal = Object::find("bbr_rubust").err().unwrap().to_string();
        assert!(refusal.contains("bbr_rubust") && refusal.contains("bbr_robust"), "{refusal}");
    }
}
