//! System calls of the child process: those that compute, and those on its three descriptors.
//!
//! A filter of the kernel (seccomp) refuses all others. So a document that took control of the child could not open a
//! file, connect to a server, start a program or use a descriptor that the operator itself has inherited: it could only
//! write a wrong answer, whose bytes the parent bounds and sidecars validate.

use std::collections::BTreeMap;

use anyhow::Context as _;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen::Dword, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter,
};

/// Calls with any arguments: memory, time, random seeds of hash tables, and the ways in which a process ends.
const ALLOWED: &[libc::c_long] = &[
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_futex,
    libc::SYS_getrandom,
    libc::SYS_clock_gettime,
    libc::SYS_sched_yield,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// Standard input, output and error.
const INPUT: u64 = 0;
const OUTPUT: u64 = 1;
const ERROR: u64 = 2;

/// Position of the descriptor among the arguments of `mmap`, and its value for memory without a file.
const MMAP_DESCRIPTOR: u8 = 4;
const NO_DESCRIPTOR: u64 = u32::MAX as u64;

/// Refuses all other system calls of this thread, and of threads that it starts, for good. A refused call fails with
/// `EPERM`.
///
/// # Errors
/// The kernel has no such filters, or the program runs on a processor that the library does not know.
pub(super) fn confine() -> anyhow::Result<()> {
    let program = program().context("the filter of system calls cannot be built")?;
    apply_filter(&program).context("the kernel does not take a filter of system calls (seccomp)")
}

fn program() -> Result<BpfProgram, seccompiler::BackendError> {
    let only = |position: u8, value: u64| {
        let condition = SeccompCondition::new(position, Dword, SeccompCmpOp::Eq, value)?;
        SeccompRule::new(vec![condition])
    };
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = ALLOWED.iter().map(|call| (*call, Vec::new())).collect();
    for call in [libc::SYS_read, libc::SYS_readv] {
        rules.insert(call, vec![only(0, INPUT)?]);
    }
    for call in [libc::SYS_write, libc::SYS_writev] {
        rules.insert(call, vec![only(0, OUTPUT)?, only(0, ERROR)?]);
    }
    rules.insert(libc::SYS_mmap, vec![only(MMAP_DESCRIPTOR, NO_DESCRIPTOR)?]);
    // An abort is a signal to itself.
    let own = u64::from(std::process::id());
    for call in [libc::SYS_tgkill, libc::SYS_kill] {
        rules.insert(call, vec![only(0, own)?]);
    }
    let refused = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    SeccompFilter::new(rules, refused, SeccompAction::Allow, std::env::consts::ARCH.try_into()?)?.try_into()
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io::{ErrorKind, Read, Write};
    use std::net::{TcpListener, UdpSocket};
    use std::os::unix::net::UnixStream;
    use std::process::Command;

    use super::*;

    #[test]
    fn confined_thread_computes_and_reaches_nothing_else() {
        let (mut inherited, mut other) = UnixStream::pair().unwrap();
        other.write_all(b"secret").unwrap();
        let null = File::open("/dev/null").unwrap();
        // The filter is one of the thread, and cannot be taken off it.
        let confined = std::thread::spawn(move || {
            confine().unwrap();
            let computed: u64 = (0..1_000_000_u64).collect::<Vec<_>>().iter().sum();
            let refused = [
                ("open", File::open("/proc/self/status").err()),
                ("list", fs::read_dir("/").err()),
                ("create", File::create("/tmp/remora-confined").err()),
                ("remove", fs::remove_file("/tmp/remora-confined").err()),
                ("listen", TcpListener::bind("127.0.0.1:0").err()),
                ("datagram", UdpSocket::bind("127.0.0.1:0").err()),
                ("start", Command::new("/bin/true").spawn().err()),
                ("read", inherited.read(&mut [0; 6]).err()),
                ("write", inherited.write(b"x").err()),
                ("duplicate", null.try_clone().err()),
                (
                    "wait",
                    rustix::process::kill_process(rustix::process::Pid::INIT, rustix::process::Signal::CONT)
                        .err()
                        .map(Into::into),
                ),
            ];
            let wrong: Vec<_> = refused
                .into_iter()
                .filter(|(_, error)| error.as_ref().map(std::io::Error::kind) != Some(ErrorKind::PermissionDenied))
                .collect();
            // Closing them is refused, too, which a debug build would take for a fault.
            std::mem::forget((inherited, null));
            (computed, wrong)
        });
        let (computed, wrong) = confined.join().unwrap();
        assert_eq!(computed, 499_999_500_000);
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}
