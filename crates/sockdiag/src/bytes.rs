//! Numbers at fixed offsets of a byte string whose end may be missing.
//!
//! The kernel only ever appends to its structures, so an older kernel sends fewer bytes and a newer one more. A field
//! that is missing is None.

/// The bytes of a kernel structure, in the byte order of this machine.
#[derive(Clone, Copy)]
pub struct Bytes<'a>(pub &'a [u8]);

impl Bytes<'_> {
    pub fn u8(self, offset: usize) -> Option<u8> {
        self.0.get(offset).copied()
    }

    pub fn u16(self, offset: usize) -> Option<u16> {
        self.array(offset).map(u16::from_ne_bytes)
    }

    pub fn u32(self, offset: usize) -> Option<u32> {
        self.array(offset).map(u32::from_ne_bytes)
    }

    pub fn u64(self, offset: usize) -> Option<u64> {
        self.array(offset).map(u64::from_ne_bytes)
    }

    pub fn array<const N: usize>(self, offset: usize) -> Option<[u8; N]> {
        self.0.get(offset..offset.checked_add(N)?)?.try_into().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_that_is_cut_off_is_none() {
        let bytes = Bytes(&[1, 0, 0, 0, 2]);
        assert_eq!(bytes.u32(0), Some(u32::from_ne_bytes([1, 0, 0, 0])));
        assert_eq!(bytes.u16(3), Some(u16::from_ne_bytes([0, 2])));
        assert_eq!(bytes.u8(4), Some(2));
        assert_eq!(bytes.u32(2), None);
        assert_eq!(bytes.u64(0), None);
        assert_eq!(bytes.u64(usize::MAX), None);
    }
}
