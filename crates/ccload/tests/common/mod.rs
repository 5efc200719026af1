//! Transfers over loopback.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::thread;

use brobust_ccload::{available, load, Refusal, Settings};

/// Loads a control. None, which is said: another may use it, or this kernel cannot.
pub fn loaded(name: &'static str, settings: &Settings) -> Option<Unloaded> {
    if available().iter().any(|known| known == name) {
        println!("skipped: {name} is loaded already, and perhaps in use");
        return None;
    }
    match load(name, settings) {
        Err(refusal @ (Refusal::NoBtf | Refusal::NoStructOps | Refusal::NoBbr { .. })) => {
            println!("skipped: {refusal}");
            None
        }
        Err(refusal) => panic!("{refusal}\n{}", refusal.log().join("\n")),
        Ok(()) => Some(Unloaded(name)),
    }
}

/// Unloads a control when it is dropped, also where a test fails.
pub struct Unloaded(pub &'static str);

impl Drop for Unloaded {
    fn drop(&mut self) {
        let _ = brobust_ccload::unload(self.0);
    }
}

/// Sends ten megabytes with a control, and returns both ends, which are still open.
pub fn transfer(control: &str) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    use_control(&client, control).unwrap();
    let reader = thread::spawn(move || {
        let mut received = vec![0; 10_000_000];
        server.read_exact(&mut received).map(|()| server)
    });
    client.write_all(&vec![7; 10_000_000]).unwrap();
    (client, reader.join().unwrap().unwrap())
}

fn use_control(stream: &TcpStream, name: &str) -> io::Result<()> {
    let length = name.len() as libc::socklen_t;
    // SAFETY: the option value is a string of the length given.
    match unsafe {
        libc::setsockopt(stream.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_CONGESTION, name.as_ptr().cast(), length)
    } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
