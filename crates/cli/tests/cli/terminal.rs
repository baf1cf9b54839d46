//! A real terminal, as far as a pseudo terminal is one.

use crate::support::Sandbox;
use rustix::fs::{Mode, OFlags, open};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, tcgetattr};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The side of a keyboard and a screen, and the side of a program.
struct Terminal {
    keyboard: File,
    line: OwnedFd,
}

impl Terminal {
    fn open() -> Self {
        let keyboard = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&keyboard).unwrap();
        unlockpt(&keyboard).unwrap();
        let name = ptsname(&keyboard, Vec::new()).unwrap();
        let line = open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
        Self { keyboard: File::from(keyboard), line }
    }

    /// Runs the program with this terminal as its own.
    fn run(&self, program: &Command) -> Child {
        let mut command = Command::new("setsid");
        command.arg("--ctty").arg(program.get_program()).args(program.get_args()).env_clear();
        for (name, value) in program.get_envs() {
            command.envs(value.map(|value| (name, value)));
        }
        let side = || Stdio::from(self.line.try_clone().unwrap());
        command.stdin(side()).stdout(side()).stderr(side()).spawn().unwrap()
    }

    /// What the programs that have ended have shown.
    fn shown(self) -> String {
        drop(self.line);
        let (mut keyboard, mut shown) = (self.keyboard, Vec::new());
        // Ends in an error as soon as nobody has the other side open.
        let _ = keyboard.read_to_end(&mut shown);
        String::from_utf8_lossy(&shown).into_owned()
    }

    fn shows_what_is_typed(&self) -> bool {
        tcgetattr(&self.line).unwrap().local_modes.contains(LocalModes::ECHO)
    }
}

#[test]
fn whoever_is_asked_for_a_password_and_interrupts_sees_again_what_is_typed() {
    // Of util-linux, as every distribution has it; `script` and `expect` are rarer.
    if Command::new("setsid").arg("--version").output().is_err() {
        eprintln!("SKIPPED: no terminal can be given to a program without 'setsid'");
        return;
    }
    let sandbox = Sandbox::with_encrypted_store().with_password(false);
    let terminal = Terminal::open();
    assert!(terminal.shows_what_is_typed());
    let mut program = terminal.run(&sandbox.command(&["snapshots"]));
    let begun = Instant::now();
    while terminal.shows_what_is_typed() {
        assert!(begun.elapsed() < Duration::from_secs(60), "no password was asked for");
        assert_eq!(program.try_wait().unwrap(), None, "ended without asking");
        std::thread::sleep(Duration::from_millis(5));
    }
    (&terminal.keyboard).write_all(b"\x03").unwrap();
    assert_eq!(program.wait().unwrap().code(), Some(130));
    assert!(terminal.shows_what_is_typed(), "the terminal was left without echo");
    assert_eq!(terminal.shown().matches("interrupted").count(), 1);
}
