//! The types of the running kernel, from its BTF. libbpf-rs cannot open the BTF of a module, so this calls libbpf
//! itself.

use std::ffi::{CStr, CString};
use std::ptr::NonNull;

use libbpf_rs::libbpf_sys as sys;

pub struct KernelBtf {
    /// The BTF of vmlinux, then those of modules: each continues the first.
    all: Vec<NonNull<sys::btf>>,
}

impl KernelBtf {
    /// Opens the kernel's BTF. None if the kernel has no BTF.
    pub fn open() -> Option<KernelBtf> {
        // SAFETY: no arguments; null on failure.
        let vmlinux = NonNull::new(unsafe { sys::btf__load_vmlinux_btf() })?;
        Some(KernelBtf { all: vec![vmlinux] })
    }

    /// Adds the BTF of a loaded module. Returns false if the module has no BTF.
    pub fn add_module(&mut self, name: &str) -> bool {
        let Ok(name) = CString::new(name) else { return false };
        // SAFETY: both pointers are valid; null on failure.
        let module = NonNull::new(unsafe { sys::btf__load_module_btf(name.as_ptr(), self.all[0].as_ptr()) });
        self.all.extend(module);
        module.is_some()
    }

    pub fn has_function(&self, name: &str) -> bool {
        self.find(name, sys::BTF_KIND_FUNC).is_some()
    }

    pub fn has_struct(&self, name: &str) -> bool {
        self.find(name, sys::BTF_KIND_STRUCT).is_some()
    }

    pub fn struct_has_field(&self, name: &str, field: &str) -> bool {
        self.member(name, field).is_some()
    }

    /// Returns the number of parameters of the function to which a field of a structure points.
    pub fn callback_parameters(&self, structure: &str, field: &str) -> Option<u32> {
        self.prototype(self.member(structure, field)?).map(vlen)
    }

    /// Returns the fields of a structure that point to functions, and their offsets in bytes.
    pub fn callbacks(&self, structure: &str) -> Option<Vec<(String, usize)>> {
        let functions = self.members(structure)?.iter().filter(|member| self.prototype(member).is_some());
        Some(functions.filter_map(|member| Some((self.string(member.name_off)?.to_owned(), offset(member)))).collect())
    }

    /// Returns the offset of a field in bytes.
    pub fn offset_of(&self, structure: &str, field: &str) -> Option<usize> {
        self.member(structure, field).map(offset)
    }

    /// Returns the type of the function to which a field points, if it points to one.
    fn prototype(&self, member: &sys::btf_member) -> Option<&sys::btf_type> {
        let pointer = self.type_by_id(member.type_).filter(|ty| kind(ty) == sys::BTF_KIND_PTR)?;
        // SAFETY: a pointer type has `type_` in the union.
        self.type_by_id(unsafe { pointer.__bindgen_anon_1.type_ }).filter(|to| kind(to) == sys::BTF_KIND_FUNC_PROTO)
    }

    fn member(&self, structure: &str, field: &str) -> Option<&sys::btf_member> {
        self.members(structure)?.iter().find(|member| self.string(member.name_off) == Some(field))
    }

    fn members(&self, structure: &str) -> Option<&[sys::btf_member]> {
        let structure = self.find(structure, sys::BTF_KIND_STRUCT)?;
        // SAFETY: libbpf has checked that `vlen` members follow a structure type.
        Some(unsafe {
            let first = std::ptr::from_ref(structure).add(1).cast::<sys::btf_member>();
            std::slice::from_raw_parts(first, vlen(structure) as usize)
        })
    }

    fn find(&self, name: &str, kind: u32) -> Option<&sys::btf_type> {
        let name = CString::new(name).ok()?;
        // SAFETY: both pointers are valid.
        let id = unsafe { sys::btf__find_by_name_kind(self.top(), name.as_ptr(), kind) };
        self.type_by_id(u32::try_from(id).ok()?)
    }

    fn type_by_id(&self, id: u32) -> Option<&sys::btf_type> {
        // SAFETY: libbpf checks the id; the type lives as long as the BTF.
        unsafe { sys::btf__type_by_id(self.top(), id).as_ref() }
    }

    fn string(&self, offset: u32) -> Option<&str> {
        // SAFETY: libbpf checks the offset; the string lives as long as the BTF.
        let text = unsafe { sys::btf__name_by_offset(self.top(), offset) };
        if text.is_null() {
            return None;
        }
        // SAFETY: libbpf's strings end with a zero byte.
        unsafe { CStr::from_ptr(text) }.to_str().ok()
    }

    /// Returns the BTF to search, the last: it includes that of vmlinux.
    fn top(&self) -> *const sys::btf {
        self.all[self.all.len() - 1].as_ptr()
    }
}

impl Drop for KernelBtf {
    fn drop(&mut self) {
        for btf in self.all.iter().rev() {
            // SAFETY: it is ours, and not used after this.
            unsafe { sys::btf__free(btf.as_ptr()) }
        }
    }
}

/// Returns the number of members, the low bits of btf_type.info (include/uapi/linux/btf.h).
fn vlen(ty: &sys::btf_type) -> u32 {
    ty.info & 0xffff
}

fn kind(ty: &sys::btf_type) -> u32 {
    (ty.info >> 24) & 0x1f
}

/// Returns the offset in bytes of a field that is not a bit-field. The low 24 bits hold the offset in bits, whether or
/// not the structure has bit-fields.
fn offset(member: &sys::btf_member) -> usize {
    (member.offset & 0x00ff_ffff) as usize / 8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_running_kernel_is_understood() {
        let Some(kernel) = KernelBtf::open() else {
            println!("skipped: this kernel has no BTF");
            return;
        };
        assert!(kernel.has_struct("tcp_sock") && !kernel.has_struct("tcp_sock_of_mars"));
        assert!(kernel.struct_has_field("tcp_sock", "packets_out"));
        assert!(!kernel.struct_has_field("tcp_sock", "packets_on_mars"));
        let parameters = kernel.callback_parameters("tcp_congestion_ops", "cong_control");
        assert!(matches!(parameters, Some(2 | 4)), "{parameters:?}");
        assert_eq!(kernel.callback_parameters("tcp_congestion_ops", "name"), None);
        let callbacks = kernel.callbacks("tcp_congestion_ops").unwrap();
        let offset = kernel.offset_of("tcp_congestion_ops", "ssthresh").unwrap();
        assert!(callbacks.contains(&("ssthresh".to_owned(), offset)), "{callbacks:?}");
        assert!(callbacks.iter().all(|(field, _)| field != "name"), "{callbacks:?}");
    }
}
