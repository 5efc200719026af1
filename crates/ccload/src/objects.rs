//! The compiled BPF objects, and what they say about themselves in their BTF.

use std::ffi::OsStr;

use libbpf_rs::btf::types::{DataSec, Struct, Var};
use libbpf_rs::btf::Btf;

use crate::{Refusal, Result};

/// Name of a control and its object file, from build.rs. The name is that of the source file, of the struct_ops map,
/// and of the congestion control.
static OBJECTS: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/objects.rs"));

/// The controls that can be loaded.
pub fn names() -> impl Iterator<Item = &'static str> {
    OBJECTS.iter().map(|(name, _)| *name)
}

pub struct Object {
    pub name: &'static str,
    pub bytes: &'static [u8],
    btf: Btf<'static>,
}

/// A constant of the object: where its value lies in the image of .rodata.
pub struct Constant {
    pub offset: usize,
    pub size: usize,
}

impl Object {
    pub fn find(name: &str) -> Result<Object> {
        let unknown = || Refusal::Unknown { name: name.to_owned() };
        let (name, bytes) = OBJECTS.iter().find(|(known, _)| *known == name).ok_or_else(unknown)?;
        let btf = Btf::from_raw(name, bytes).ok().flatten().ok_or_else(unknown)?;
        Ok(Object { name, bytes, btf })
    }

    /// The fields of a kernel structure that the object reads; none if it does not read it.
    pub fn fields_used(&self, structure: &str) -> Vec<String> {
        let Some(found) = self.btf.type_by_name::<Struct>(structure) else { return Vec::new() };
        found.iter().filter_map(|member| Some(member.name?.to_str()?.to_owned())).collect()
    }

    /// The fields of a structure of the object's own, and their offsets in bytes.
    #[cfg(test)]
    pub fn offsets(&self, structure: &str) -> std::collections::HashMap<String, usize> {
        let found = self.btf.type_by_name::<Struct>(structure).expect(structure);
        let of_member = |member: libbpf_rs::btf::types::StructMember| match member.attr {
            libbpf_rs::btf::types::MemberAttr::Normal { offset } => {
                (member.name.unwrap().to_str().unwrap().to_owned(), offset as usize / 8)
            }
            other => panic!("{structure} has a field of bits: {other:?}"),
        };
        found.iter().map(of_member).collect()
    }

    pub fn constant(&self, name: &str) -> Option<Constant> {
        let rodata = self.btf.type_by_name::<DataSec>(".rodata")?;
        let found = rodata.iter().find(|variable| {
            let variable: Option<Var> = self.btf.type_by_id(variable.ty);
            variable.is_some_and(|variable| variable.name() == Some(OsStr::new(name)))
        })?;
        Some(Constant { offset: found.offset as usize, size: found.size })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
