//! On the running kernel. Tests that need privilege say so (`-- --ignored`).

use std::ffi::CString;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use brobust_sockdiag::{Error, Filter, SockDiag};

fn pair(address: &str) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(address).unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    (client, server)
}

/// Goes on for a minute, which only a test that fails takes.
fn for_a_minute() -> impl Iterator<Item = ()> {
    let begun = Instant::now();
    std::iter::repeat(()).take_while(move |()| begun.elapsed() < Duration::from_secs(60))
}

fn open() -> Option<SockDiag> {
    let mut diag = SockDiag::open().unwrap();
    match diag.dump(&Filter::default()) {
        Err(Error::NoTcpDiag) => {
            println!("skipped: this kernel has no tcp_diag");
            None
        }
        result => {
            result.unwrap();
            Some(diag)
        }
    }
}

#[test]
fn a_connection_is_found_by_its_port_followed_by_its_key_and_missed_when_gone() {
    let Some(mut diag) = open() else { return };
    for address in ["127.0.0.1:0", "[::1]:0"] {
        if address == "[::1]:0" && TcpListener::bind(address).is_err() {
            println!("skipped: this host has no IPv6");
            continue;
        }
        let (mut client, mut server) = pair(address);
        client.write_all(&[7; 100_000]).unwrap();
        server.read_exact(&mut vec![0; 100_000]).unwrap();
        let remote_port = Some(client.peer_addr().unwrap().port());

        let found = diag.dump(&Filter { remote_port, ..Filter::default() }).unwrap();
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].key.local, client.local_addr().unwrap());
        assert_eq!(found[0].key.remote, client.peer_addr().unwrap());
        let other_family = Some(client.local_addr().unwrap().is_ipv4());
        assert!(diag.dump(&Filter { remote_port, ipv6: other_family, ..Filter::default() }).unwrap().is_empty());

        let again = diag.get(&found[0].key).unwrap().expect("the connection is there");
        assert!(again.time_ns >= found[0].time_ns);
        assert!(again.tcp.bytes_sent.unwrap() >= 100_000);
        assert!(again.tcp.cwnd_packets.unwrap() > 0 && again.tcp.rtt_us.unwrap() > 0);
        assert!(again.congestion_control.is_some());

        let mut stale = found[0].key;
        stale.cookie = [3; 8];
        assert_eq!(diag.get(&stale).unwrap(), None);
        let key = found[0].key;
        drop((client, server));
        // On a busy machine their last segments may wait for the kernel.
        assert!(for_a_minute().any(|()| diag.get(&key).unwrap().is_none()));
    }
}

#[test]
fn a_connection_that_both_ends_have_closed_is_found_while_it_has_data_to_send() {
    let Some(mut diag) = open() else { return };
    // TCP_CLOSING and TCP_LAST_ACK (include/net/tcp_states.h).
    for (first, state) in [(true, 11), (false, 9)] {
        let (mut client, server) = pair("127.0.0.1:0");
        client.set_nonblocking(true).unwrap();
        while client.write(&[7; 100_000]).is_ok() {} // more than the other end, which does not read, has room for
        let ends = if first { [&client, &server] } else { [&server, &client] };
        for end in ends {
            end.shutdown(Shutdown::Write).unwrap();
        }
        let remote_port = Some(server.local_addr().unwrap().port());
        // On a busy machine the last segments may wait for the kernel.
        let found = |()| diag.dump(&Filter { remote_port, ..Filter::default() }).unwrap().pop();
        let found = for_a_minute().filter_map(found).find(|one| one.tcp.state == Some(state));
        assert!(found.is_some_and(|one| one.tcp.notsent_bytes > Some(0)), "none is in state {state}");
    }
}

#[test]
#[ignore = "needs root: only root may load bbr, and use it where it is not allowed to all"]
fn the_model_of_the_kernels_bbr_is_read() {
    let Some(mut diag) = open() else { return };
    let (mut client, mut server) = pair("127.0.0.1:0");
    let name = CString::new("bbr").unwrap();
    // SAFETY: the option value is a string of the length given.
    let result = unsafe {
        libc::setsockopt(client.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_CONGESTION, name.as_ptr().cast(), 3)
    };
    if result != 0 {
        println!("skipped: this kernel has no bbr: {}", std::io::Error::last_os_error());
        return;
    }
    for _ in 0..20 {
        client.write_all(&[7; 50_000]).unwrap();
        server.read_exact(&mut vec![0; 50_000]).unwrap();
    }
    let remote_port = Some(client.peer_addr().unwrap().port());
    let socket = &diag.dump(&Filter { remote_port, ..Filter::default() }).unwrap()[0];
    assert_eq!(socket.congestion_control.as_deref(), Some("bbr"));
    let model = socket.bbr.as_ref().expect("BBR tells its model");
    assert!(model.bandwidth_bytes_per_s > 0 && model.pacing_gain_x256 >= 88, "{model:?}");
    assert!(socket.inflight_bdp().is_some() && socket.tcp.pacing_rate_bytes_per_s.is_some());
    assert_eq!(model.mode, None);
}
