//! A registry on this machine.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::packed::{Directory, root};

const CAP: Duration = Duration::from_secs(60);

/// Registry at an address of this machine. It stops when this value is dropped.
pub(crate) struct Registry {
    process: Child,
    /// Place of the images and the chart.
    pub(crate) place: String,
}

impl Registry {
    pub(crate) fn start(directory: &Directory) -> Registry {
        // The port is free again when the registry binds it.
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let log = std::fs::File::create(directory.0.join("log")).unwrap();
        let mut command = Command::new(root().join("e2e/release/registry.sh"));
        command.arg(&directory.0).arg(port.to_string()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let mut registry = Registry { process: command.spawn().unwrap(), place: format!("127.0.0.1:{port}/remora") };
        let end = Instant::now() + CAP;
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            let said = || std::fs::read_to_string(directory.0.join("log")).unwrap();
            assert!(registry.process.try_wait().unwrap().is_none(), "the registry ended: {}", said());
            assert!(Instant::now() < end, "the registry does not answer after {CAP:?}: {}", said());
            std::thread::sleep(Duration::from_millis(20));
        }
        registry
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _a_registry_that_has_ended_is_no_failure = self.process.kill();
        let _it_was_started_by_this_process = self.process.wait();
    }
}
