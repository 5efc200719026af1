//! Frames as the link sees them: headers, and the length of a payload that is mostly not carried.
use crate::shared::{FrameHead, FRAME_BYTES, IPV6_PREFIX};

const ETHERNET: usize = 14;
/// The header of IP begins here, with the version.
const IP: usize = ETHERNET;
const IPV6_HEADER: usize = 40;
pub const MAX_HEADER: usize = 128;
/// Longest frame, bytes: with a super-packet of the greatest length (the kernel's GSO_MAX_SIZE).
const MAX_LENGTH: u32 = ETHERNET as u32 + 8 * 65535;

/// Most frames that a kernel may leave at a time. A header of 54 bytes can ask for half a million segments.
pub const MAX_FRAMES: usize = 1 << 22;

pub const TCP: u8 = 6;
pub const UDP: u8 = 17;
const UDP_HEADER: usize = 8;
/// Headers that IPv6 may have in front of the protocol's.
const HOP_BY_HOP: u8 = 0;
const FRAGMENT: u8 = 44;
const EXTENSION: usize = 8;

/// What the link has to know of a packet. What its protocol does not have is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Headers {
    /// IP's number of the protocol.
    pub protocol: u8,
    /// IPv4 addresses; of IPv6 the numbers of the nodes that have them, or 0.
    pub source: u32,
    pub destination: u32,
    pub source_port: u16,
    pub destination_port: u16,
    pub seq: u32,
    pub ack: u32,
    pub payload: u32,
    /// IPv4's. IPv6 has none: there it is the mark that the controller has given the packet.
    pub identification: u16,
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

    pub fn is_ipv6(&self) -> bool {
        self.header[IP] >> 4 == 6
    }

    /// Gives the packet an identification by which it can be told from others.
    pub fn identify(&mut self, identification: u16) {
        self.headers.identification = identification;
        if !self.is_ipv6() {
            self.put_u16(IP + 4, identification);
            self.set_ip_checksum();
        }
    }

    /// Writes into the header of IP how long the packet is, and into that of IPv4 its identification and checksum.
    fn set_ip_length(&mut self) {
        if self.is_ipv6() {
            self.put_u16(IP + 4, (self.length as usize - IP - IPV6_HEADER) as u16);
        } else {
            self.put_u16(IP + 2, (self.length as usize - IP) as u16);
            self.put_u16(IP + 4, self.headers.identification);
            self.set_ip_checksum();
        }
    }

    /// Sets the header's checksum (RFC 791). TCP's checksum is left alone: a NIC would compute it, and this link
    /// changes no bits.
    fn set_ip_checksum(&mut self) {
        let at = IP;
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
pub fn decode(bytes: &[u8], each: impl FnMut(Frame)) -> Result<(), String> {
    decode_at_most(MAX_FRAMES, bytes, each)
}

fn decode_at_most(max_frames: usize, bytes: &[u8], mut each: impl FnMut(Frame)) -> Result<(), String> {
    let mut rest = bytes;
    let mut frames = 0;
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
        frames += frame.headers.payload.checked_div(head.gso_size.into()).unwrap_or(0) as usize + 1;
        if frames > max_frames {
            return Err(format!("it left more than {max_frames} packets at a time"));
        }
        segment(frame, u32::from(head.gso_size), &mut each)?;
        rest = &rest[record..];
    }
    Ok(())
}

/// What the header of IP says.
struct Ip {
    protocol: u8,
    source: u32,
    destination: u32,
    identification: u16,
    /// Only the first fragment of a datagram has the headers of its protocol.
    is_fragment: bool,
    /// Where the header of the protocol begins.
    transport: usize,
}

fn u16_at(header: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([header[at], header[at + 1]])
}

fn u32_at(header: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
}

fn ipv4(header: &[u8]) -> Result<Ip, String> {
    let transport = IP + usize::from(header[IP] & 15) * 4;
    if transport < IP + 20 || header.len() < transport {
        return Err("it left a frame that ends within its IP header".into());
    }
    Ok(Ip {
        protocol: header[IP + 9],
        source: u32_at(header, IP + 12),
        destination: u32_at(header, IP + 16),
        identification: u16_at(header, IP + 4),
        is_fragment: u16_at(header, IP + 6) & 0x3fff != 0,
        transport,
    })
}

fn ipv6(header: &[u8], mark: u16) -> Result<Ip, String> {
    let (protocol, transport) = (header[IP + 6], IP + IPV6_HEADER);
    let is_fragment = protocol == FRAGMENT;
    if header.len() < transport + if is_fragment { EXTENSION } else { 0 } {
        return Err("it left a frame that ends within its IP header".into());
    }
    let (source, destination) = (number_of(&header[IP + 8..]), number_of(&header[IP + 24..]));
    Ok(Ip {
        protocol: if is_fragment { header[transport] } else { protocol },
        source,
        destination,
        identification: mark,
        is_fragment,
        transport: transport + if is_fragment { EXTENSION } else { 0 },
    })
}

/// Returns the number of the node that has an IPv6 address; 0 if none can have it.
fn number_of(address: &[u8]) -> u32 {
    match address[..12] == (u128::from(IPV6_PREFIX) << 64).to_be_bytes()[..12] {
        true => u32_at(address, 12),
        false => 0,
    }
}

/// Removes the header that the kernel puts in front of TCP's where a super-packet of IPv6 is longer than 64 KiB (until
/// Linux 7.0), because no segment has it (kernel: ipv6_hopopt_jumbo_remove). Returns how long it was.
fn remove_jumbo(header: &mut [u8]) -> usize {
    let at = IP + IPV6_HEADER;
    if header.len() < at + EXTENSION || header[12..14] != [0x86, 0xdd] || header[IP + 6] != HOP_BY_HOP {
        return 0;
    }
    header[IP + 6] = header[at];
    header.copy_within(at + EXTENSION.., at);
    EXTENSION
}

fn parse(head: &FrameHead, whole: &[u8], carried: &[u8]) -> Result<Frame, String> {
    let mut own = [0; MAX_HEADER];
    own[..whole.len()].copy_from_slice(whole);
    let removed = if head.gso_size > 0 { remove_jumbo(&mut own[..whole.len()]) } else { 0 };
    let header = &own[..whole.len() - removed];
    let length = head.length - removed as u32;
    let Ip { protocol, source, destination, identification, is_fragment, transport } = match header.get(12..15) {
        Some([0x08, 0x00, first]) if first >> 4 == 4 && header.len() >= IP + 20 => ipv4(header)?,
        Some([0x86, 0xdd, first]) if first >> 4 == 6 && header.len() >= IP + IPV6_HEADER => ipv6(header, head.mark)?,
        _ => return Err("it left a frame that is neither IPv4 nor IPv6".into()),
    };
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
    let port_at = |at: usize| if has_ports { u16_at(header, at) } else { 0 };
    let of_tcp = |at: usize| if has_ports && protocol == TCP { u32_at(header, at) } else { 0 };
    Ok(Frame {
        time: head.time,
        length,
        header: own,
        header_length: header.len() as u8,
        carried: carried.into(),
        continues: false,
        headers: Headers {
            protocol,
            source,
            destination,
            source_port: port_at(transport),
            destination_port: port_at(transport + 2),
            seq: of_tcp(transport + 4),
            ack: of_tcp(transport + 8),
            payload: (length as usize).saturating_sub(transport + transport_header) as u32,
            identification,
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
        part.set_ip_length();
        if frame.headers.protocol == TCP {
            part.headers.seq = frame.headers.seq.wrapping_add(offset);
            let seq = part.headers.seq.to_be_bytes();
            part.header[transport + 4..transport + 8].copy_from_slice(&seq);
            let keep = if last { 0xff } else { !0x09 } & if first { 0xff } else { !0x80 };
            part.header[transport + 13] = frame.header[transport + 13] & keep;
        } else {
            part.put_u16(transport + 4, (UDP_HEADER as u32 + here) as u16);
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
        mark: if frame.is_ipv6() { frame.headers.identification } else { 0 },
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
        let head = FrameHead { time, length: 54 + payload, record: 88, header: 54, payload: 0, gso_size, mark: 0 };
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

    /// A frame of IPv6, from 2001:db8::1 to 2001:db8::2, with `before` between its header and TCP's.
    fn ipv6_record(before: &[u8], next: u8, payload: u32, gso_size: u16) -> Vec<u8> {
        let mut header = vec![0u8; 74];
        (header[12], header[13], header[14], header[20]) = (0x86, 0xdd, 0x60, next);
        header[22..26].copy_from_slice(&[0x20, 1, 0x0d, 0xb8]);
        header[38..42].copy_from_slice(&[0x20, 1, 0x0d, 0xb8]);
        (header[37], header[53], header[55], header[66], header[67]) = (1, 2, 9, 0x50, 0x99);
        header.splice(54..54, before.iter().copied());
        let (size, head_length) = (header.len(), size_of::<FrameHead>());
        let record = (head_length + size).next_multiple_of(8);
        let (length, header_bytes) = (size as u32 + payload, size as u16);
        let head =
            FrameHead { time: 5, length, record: record as u32, header: header_bytes, payload: 0, gso_size, mark: 7 };
        let mut bytes = vec![0; record];
        unsafe { std::ptr::write_unaligned(bytes.as_mut_ptr().cast(), head) };
        bytes[head_length..][..size].copy_from_slice(&header);
        bytes
    }

    #[test]
    fn a_super_packet_of_ipv6_is_cut_too_and_loses_the_header_that_makes_it_long() {
        let jumbo = [TCP, 0, 0xc2, 4, 0, 1, 0x40, 0];
        for bytes in [ipv6_record(&[], TCP, 2500, 1000), ipv6_record(&jumbo, HOP_BY_HOP, 2500, 1000)] {
            let mut frames = Vec::new();
            decode(&bytes, |frame| frames.push(frame)).unwrap();
            let seen: Vec<_> = frames.iter().map(|f| (f.length, f.headers.seq, f.headers.payload)).collect();
            assert_eq!(seen, [(1074, 0, 1000), (1074, 1000, 1000), (574, 2000, 500)]);
            let headers = frames[2].headers;
            assert_eq!((headers.source, headers.destination, headers.source_port, headers.protocol), (1, 2, 9, TCP));
            assert!(frames.iter().all(|f| f.header().len() == 74 && f.header()[20] == TCP));
            assert_eq!(u16_at(frames[0].header(), 18), 1020);
            assert_eq!(frames.iter().map(|f| f.header()[67]).collect::<Vec<_>>(), [0x90, 0x10, 0x19]);
        }
    }

    #[test]
    fn a_packet_of_ipv6_keeps_the_mark_by_which_it_is_known() {
        let mut frames = Vec::new();
        decode(&ipv6_record(&[], TCP, 100, 0), |frame| frames.push(frame)).unwrap();
        assert_eq!(frames[0].headers.identification, 7);
        let before = frames[0].header().to_vec();
        frames[0].identify(65_000);
        assert_eq!(frames[0].header(), before);
        let mut buffer: Box<[u8; FRAME_BYTES]> = vec![0; FRAME_BYTES].try_into().unwrap();
        let mut used = 0;
        assert!(encode(&frames[0], &mut buffer, &mut used));
        decode(&buffer[..used as usize], |frame| assert_eq!(frame.headers.identification, 65_000)).unwrap();
    }

    #[test]
    fn a_fragment_of_ipv6_has_no_ports_and_an_address_of_no_node_no_number() {
        let mut bytes = ipv6_record(&[TCP, 0, 0, 1, 0, 0, 0, 9], FRAGMENT, 100, 0);
        bytes[size_of::<FrameHead>() + 30] = 1;
        let mut frames = Vec::new();
        decode(&bytes, |frame| frames.push(frame)).unwrap();
        let headers = frames[0].headers;
        assert_eq!((headers.protocol, headers.source_port, headers.payload), (TCP, 0, 120));
        assert_eq!((headers.source, headers.destination), (0, 2));
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

    /// The fuzzer found that the length of such a datagram overflowed.
    #[test]
    fn a_segment_of_the_greatest_size_is_no_overflow() {
        let mut bytes = record(5, 1, 0, 100_000, u16::MAX);
        bytes[size_of::<FrameHead>() + 23] = UDP;
        bytes[16..18].copy_from_slice(&42u16.to_le_bytes());
        let mut frames = Vec::new();
        decode(&bytes, |frame| frames.push(frame.headers.payload)).unwrap();
        assert_eq!(frames, [65_535, 34_477]);
    }

    /// 47,000 such frames have room in the buffer.
    #[test]
    fn many_frames_of_many_segments_are_refused() {
        let mut seen = 0;
        let refused = decode_at_most(2500, &record(1, 2, 3, 1000, 1).repeat(9), |_| seen += 1).unwrap_err();
        assert_eq!((refused.as_str(), seen), ("it left more than 2500 packets at a time", 2000));
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
