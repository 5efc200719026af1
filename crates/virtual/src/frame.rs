//! Frames as the link sees them: headers, and the length of a payload that is mostly not carried.
use crate::shared::{FrameHead, FRAME_BYTES};

const ETHERNET: usize = 14;
pub const MAX_HEADER: usize = 128;
/// Longest frame, bytes: with a super-packet of the greatest length (the kernel's GSO_MAX_SIZE).
const MAX_LENGTH: u32 = ETHERNET as u32 + 8 * 65535;

pub const TCP: u8 = 6;
pub const UDP: u8 = 17;
const UDP_HEADER: usize = 8;

/// What the link has to know of a packet. What its protocol does not have is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Headers {
    /// IP's number of the protocol.
    pub protocol: u8,
    pub source: u32,
    pub destination: u32,
    pub source_port: u16,
    pub destination_port: u16,
    pub seq: u32,
    pub ack: u32,
    pub payload: u32,
    pub identification: u16,
    ip: usize,
    /// Where TCP's or UDP's header begins.
    transport: usize,
}

/// One frame: its headers, its carried payload if there is any, and its length on a wire.
#[derive(Debug, Clone)]
pub struct Frame {
    /// When it was sent; once the network has carried it, when it arrives. ns.
    pub time: u64,
    pub length: u32,
    header: [u8; MAX_HEADER],
    header_length: u8,
    carried: Box<[u8]>,
    /// Whether it is a segment of the same super-packet as the frame before it.
    pub continues: bool,
    pub headers: Headers,
}

impl Frame {
    pub fn header(&self) -> &[u8] {
        &self.header[..usize::from(self.header_length)]
    }

    pub fn carried(&self) -> &[u8] {
        &self.carried
    }

    /// Gives the packet an identification by which it can be told from others.
    pub fn identify(&mut self, identification: u16) {
        self.headers.identification = identification;
        self.put_u16(self.headers.ip + 4, identification);
        self.set_ip_checksum();
    }

    /// Sets the header's checksum (RFC 791). TCP's checksum is left alone: a NIC would compute it, and this link
    /// changes no bits.
    fn set_ip_checksum(&mut self) {
        let at = self.headers.ip;
        self.put_u16(at + 10, 0);
        let words = self.header[at..self.headers.transport].chunks_exact(2);
        let mut sum: u32 = words.map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum();
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        self.put_u16(at + 10, !(sum as u16));
    }

    fn put_u16(&mut self, at: usize, value: u16) {
        self.header[at..at + 2].copy_from_slice(&value.to_be_bytes());
    }
}

/// Decodes the frames that a kernel left, with super-packets cut into the segments that a NIC would send.
pub fn decode(bytes: &[u8], mut each: impl FnMut(Frame)) -> Result<(), String> {
    let mut rest = bytes;
    while !rest.is_empty() {
        let head_length = size_of::<FrameHead>();
        if rest.len() < head_length {
            return Err(format!("it left {} bytes where a frame should begin", rest.len()));
        }
        // SAFETY: there are enough bytes, and FrameHead is plain integers.
        let head: FrameHead = unsafe { std::ptr::read_unaligned(rest.as_ptr().cast()) };
        let header = usize::from(head.header);
        let used = head_length + header + usize::from(head.payload);
        let record = head.record as usize;
        let possible = used - head_length..=MAX_LENGTH as usize;
        if record < used || record > rest.len() || header > MAX_HEADER || !possible.contains(&(head.length as usize)) {
            return Err(format!("it left a frame of impossible size: {head:?}"));
        }
        let carried = &rest[head_length + header..used];
        let frame = parse(&head, &rest[head_length..head_length + header], carried)?;
        segment(frame, u32::from(head.gso_size), &mut each)?;
        rest = &rest[record..];
    }
    Ok(())
}

fn parse(head: &FrameHead, header: &[u8], carried: &[u8]) -> Result<Frame, String> {
    let u16_at = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let u32_at = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    if header.len() < ETHERNET + 20 || u16_at(12) != 0x0800 || header[ETHERNET] >> 4 != 4 {
        return Err("it left a frame that is not IPv4".into());
    }
    let ip = ETHERNET;
    let transport = ip + usize::from(header[ip] & 15) * 4;
    if transport < ip + 20 || header.len() < transport {
        return Err("it left a frame that ends within its IP header".into());
    }
    // Only the first fragment of a datagram has the headers of its protocol.
    let is_fragment = u16_at(ip + 6) & 0x3fff != 0;
    let protocol = header[ip + 9];
    let transport_header = match protocol {
        _ if is_fragment => 0,
        TCP if header.len() < transport + 20 => usize::MAX,
        TCP => usize::from(header[transport + 12] >> 4) * 4,
        UDP => UDP_HEADER,
        _ => 0,
    };
    if header.len() < transport.saturating_add(transport_header) {
        return Err("it left a frame that ends within the header of its protocol".into());
    }
    let has_ports = transport_header > 0;
    let port_at = |at: usize| if has_ports { u16_at(at) } else { 0 };
    let of_tcp = |at: usize| if has_ports && protocol == TCP { u32_at(at) } else { 0 };
    let mut own = [0; MAX_HEADER];
    own[..header.len()].copy_from_slice(header);
    Ok(Frame {
        time: head.time,
        length: head.length,
        header: own,
        header_length: header.len() as u8,
        carried: carried.into(),
        continues: false,
        headers: Headers {
            protocol,
            source: u32_at(ip + 12),
            destination: u32_at(ip + 16),
            source_port: port_at(transport),
            destination_port: port_at(transport + 2),
            seq: of_tcp(transport + 4),
            ack: of_tcp(transport + 8),
            payload: (head.length as usize).saturating_sub(transport + transport_header) as u32,
            identification: u16_at(ip + 4),
            ip,
            transport,
        },
    })
}

/// Cuts a super-packet as segmentation offload does (kernel: tcp_gso_segment, __udp_gso_segment): into segments of at
/// most `size` bytes of payload. Of TCP, PSH and FIN are only on the last and CWR only on the first.
fn segment(frame: Frame, size: u32, each: &mut impl FnMut(Frame)) -> Result<(), String> {
    let payload = frame.headers.payload;
    if size == 0 || payload <= size {
        each(frame);
        return Ok(());
    }
    let (transport, header_length) = (frame.headers.transport, usize::from(frame.header_length));
    let headers = frame.length - payload;
    match frame.headers.protocol {
        TCP => {}
        UDP if header_length == transport + UDP_HEADER => {}
        other => return Err(format!("it left a super-packet of IP protocol {other}")),
    }
    let (mut offset, mut number) = (0, 0u16);
    while offset < payload {
        let here = size.min(payload - offset);
        let (first, last) = (offset == 0, offset + here == payload);
        let mut part = Frame { carried: Box::default(), continues: !first, ..frame.clone() };
        if !frame.carried.is_empty() {
            let bytes = frame.carried.get(offset as usize..(offset + here) as usize);
            part.carried = bytes.ok_or("it left a super-packet with only part of its payload")?.into();
        }
        part.length = headers + here;
        part.headers.payload = here;
        part.headers.identification = frame.headers.identification.wrapping_add(number);
        part.put_u16(frame.headers.ip + 2, (part.length as usize - ETHERNET) as u16);
        part.put_u16(frame.headers.ip + 4, part.headers.identification);
        part.set_ip_checksum();
        if frame.headers.protocol == TCP {
            part.headers.seq = frame.headers.seq.wrapping_add(offset);
            let seq = part.headers.seq.to_be_bytes();
            part.header[transport + 4..transport + 8].copy_from_slice(&seq);
            let keep = if last { 0xff } else { !0x09 } & if first { 0xff } else { !0x80 };
            part.header[transport + 13] = frame.header[transport + 13] & keep;
        } else {
            part.put_u16(transport + 4, UDP_HEADER as u16 + here as u16);
        }
        each(part);
        offset += here;
        number = number.wrapping_add(1);
    }
    Ok(())
}

/// Appends a frame to what a kernel is to receive. Returns false if there is no room for it.
pub fn encode(frame: &Frame, to: &mut [u8; FRAME_BYTES], used: &mut u32) -> bool {
    let head_length = size_of::<FrameHead>();
    let (header, carried) = (frame.header(), frame.carried());
    let record = (head_length + header.len() + carried.len()).next_multiple_of(8);
    let at = *used as usize;
    if at + record > FRAME_BYTES {
        return false;
    }
    let head = FrameHead {
        time: frame.time,
        length: frame.length,
        record: record as u32,
        header: header.len() as u16,
        payload: carried.len() as u16,
        gso_size: 0,
        reserved: 0,
    };
    // SAFETY: there is room for it, and FrameHead is plain integers.
    unsafe { std::ptr::write_unaligned(to[at..].as_mut_ptr().cast(), head) };
    to[at + head_length..][..header.len()].copy_from_slice(header);
    to[at + head_length + header.len()..][..carried.len()].copy_from_slice(carried);
    *used += record as u32;
    true
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A TCP frame without options.
    pub(crate) fn example(time: u64, source: u32, seq: u32, payload: u32) -> Frame {
        let bytes = record(time, source, seq, payload, 0);
        let mut frames = Vec::new();
        decode(&bytes, |frame| frames.push(frame)).unwrap();
        frames.remove(0)
    }

    fn record(time: u64, source: u32, seq: u32, payload: u32, gso_size: u16) -> Vec<u8> {
        let mut header = vec![0u8; 54];
        header[12] = 8;
        header[14] = 0x45;
        header[16..18].copy_from_slice(&((40 + payload) as u16).to_be_bytes());
        header[18..20].copy_from_slice(&100u16.to_be_bytes());
        header[23] = 6;
        header[26..30].copy_from_slice(&source.to_be_bytes());
        header[38..42].copy_from_slice(&seq.to_be_bytes());
        header[46] = 0x50;
        header[47] = 0x99; // CWR, ACK, PSH, FIN
        let head = FrameHead { time, length: 54 + payload, record: 88, header: 54, payload: 0, gso_size, reserved: 0 };
        let mut bytes = vec![0; 88];
        unsafe { std::ptr::write_unaligned(bytes.as_mut_ptr().cast(), head) };
        bytes[size_of::<FrameHead>()..][..54].copy_from_slice(&header);
        bytes
    }

    #[test]
    fn a_super_packet_is_cut_as_a_nic_cuts_it() {
        let mut frames = Vec::new();
        decode(&record(5, 1, u32::MAX - 999, 2500, 1000), |frame| frames.push(frame)).unwrap();
        let seen: Vec<_> = frames.iter().map(|f| (f.time, f.length, f.headers.seq, f.headers.identification)).collect();
        assert_eq!(seen, [(5, 1054, u32::MAX - 999, 100), (5, 1054, 0, 101), (5, 554, 1000, 102)]);
        let flags: Vec<_> = frames.iter().map(|f| f.header()[47]).collect();
        assert_eq!(flags, [0x90, 0x10, 0x19]);
        assert_eq!(u16::from_be_bytes([frames[2].header()[16], frames[2].header()[17]]), 540);
    }

    #[test]
    fn a_super_packet_of_datagrams_is_cut_too() {
        let mut bytes = record(5, 1, 0, 2500, 1000);
        let at = size_of::<FrameHead>();
        bytes[at + 23] = UDP;
        bytes[8..12].copy_from_slice(&(42u32 + 2500).to_le_bytes());
        bytes[16..18].copy_from_slice(&42u16.to_le_bytes());
        bytes[at + 34..at + 38].copy_from_slice(&[0x11, 0x51, 0x14, 0x51]);
        let mut frames = Vec::new();
        decode(&bytes, |frame| frames.push(frame)).unwrap();
        let seen: Vec<_> = frames.iter().map(|f| (f.length, f.headers.payload, f.headers.identification)).collect();
        assert_eq!(seen, [(1042, 1000, 100), (1042, 1000, 101), (542, 500, 102)]);
        assert_eq!((frames[0].headers.source_port, frames[0].headers.destination_port), (0x1151, 0x1451));
        let lengths: Vec<_> = frames.iter().map(|f| u16::from_be_bytes([f.header()[38], f.header()[39]])).collect();
        assert_eq!(lengths, [1008, 1008, 508]);
    }

    #[test]
    fn a_packet_of_any_protocol_and_a_fragment_have_no_ports() {
        for (at, value) in [(23, 1), (20, 0x20)] {
            let mut bytes = record(5, 1, 0, 100, 0);
            bytes[size_of::<FrameHead>() + 23] = UDP;
            bytes[size_of::<FrameHead>() + at] = value;
            bytes[size_of::<FrameHead>() + 34] = 9;
            let mut frames = Vec::new();
            decode(&bytes, |frame| frames.push(frame)).unwrap();
            assert_eq!((frames[0].headers.source_port, frames[0].headers.payload), (0, 120));
        }
    }

    /// The fuzzer found 80 bytes that became four thousand million segments.
    #[test]
    fn a_frame_longer_than_ip_allows_is_refused() {
        for (length, fits) in [(MAX_LENGTH, true), (MAX_LENGTH + 1, false), (u32::MAX, false)] {
            let mut bytes = record(1, 2, 3, 4000, 1448);
            bytes[8..12].copy_from_slice(&length.to_le_bytes());
            assert_eq!(decode(&bytes, |_| ()).is_ok(), fits, "{length}");
        }
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        let mut buffer: Box<[u8; FRAME_BYTES]> = vec![0; FRAME_BYTES].try_into().unwrap();
        let mut used = 0;
        for seq in 0..3 {
            assert!(encode(&example(seq, 9, seq as u32, 1000), &mut buffer, &mut used));
        }
        let mut seen = Vec::new();
        decode(&buffer[..used as usize], |frame| seen.push((frame.time, frame.headers.seq, frame.headers.payload)))
            .unwrap();
        assert_eq!(seen, [(0, 0, 1000), (1, 1, 1000), (2, 2, 1000)]);
    }

    #[test]
    fn a_full_buffer_takes_no_more() {
        let mut buffer: Box<[u8; FRAME_BYTES]> = vec![0; FRAME_BYTES].try_into().unwrap();
        let mut used = FRAME_BYTES as u32 - 72;
        assert!(!encode(&example(0, 9, 0, 1000), &mut buffer, &mut used));
    }

    proptest! {
        #[test]
        fn no_bytes_of_a_kernel_are_believed(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let _ = decode(&bytes, |_| ());
        }

        #[test]
        fn a_broken_frame_is_refused_or_whole(at in 0usize..88, value: u8, gso in 0u16..3000) {
            let mut bytes = record(1, 2, 3, 4000, gso);
            bytes[at] = value;
            let mut payload = 0;
            if decode(&bytes, |frame| payload += u64::from(frame.headers.payload)).is_ok() {
                prop_assert!(payload <= u64::from(u32::MAX));
            }
        }

        #[test]
        fn segments_carry_all_payload(payload in 1u32..65_000, size in 1u16..9000) {
            let (mut sum, mut next) = (0, 77);
            decode(&record(1, 2, 77, payload, size), |frame| {
                assert_eq!(frame.headers.seq, next);
                next = next.wrapping_add(frame.headers.payload);
                sum += frame.headers.payload;
            }).unwrap();
            prop_assert_eq!(sum, payload);
        }
    }
}
