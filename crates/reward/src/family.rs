//! Families of processes: a running program with everything that it started, and the end of all of them.

#[cfg(unix)]
mod guard;
#[cfg(unix)]
mod kin;

use std::{
    io,
    process::{Child, Command, ExitStatus},
    thread,
    time::{Duration, Instant},
};

#[cfg(unix)]
use self::{guard::Guard, kin::Mark};

#[cfg(unix)]
pub(crate) use kin::bury_orphans;

#[cfg(not(unix))]
pub(crate) fn bury_orphans() {}

/// Makes this process the parent of every process below it whose own parent has ended. The last running copy of a
/// [`Command`](crate::Command) then ends such orphans when it ends. Only Linux supports this.
///
/// It is meant for a program that does not start other lasting processes in separate groups. Without it a process
/// outlives its verifier if it has left the verifier's group, has cleared its environment and has lost its parent.
pub fn become_subreaper() {
    #[cfg(unix)]
    kin::become_subreaper();
}

/// A program that was started, and all that it started in turn.
///
/// Everything here holds for Unix. On Windows the program has no guard, and its end is the end of the program alone.
pub(crate) struct Family {
    child: Child,
    /// Status at the program's end, once it was waited for.
    status: Option<ExitStatus>,
    /// True once everything was ended. After that, the program's process id may be reused.
    over: bool,
    #[cfg(unix)]
    kin: kin::ProgramProcesses,
    #[cfg(unix)]
    guard: Option<Guard>,
}

impl Family {
    /// Starts the program in its own group, and a guard that ends it if this process is killed.
    #[cfg(unix)]
    pub(crate) fn start(mut command: Command) -> io::Result<Self> {
        use std::os::unix::process::CommandExt as _;

        // In its own group the program does not get Ctrl-C, after which a run still finishes its step.
        command.process_group(0);
        let mark = Mark::new();
        command.env(Mark::VARIABLE, &mark.value);

        // While the list is locked, the new processes are not mistaken for orphans.
        let mut programs = kin::programs();
        // The guard starts first, so that there is no moment without it.
        let mut guard = Guard::new(&mark);
        let child = command.spawn()?;

        if let Some(guard) = &mut guard {
            guard.watch(child.id());
        }

        programs.insert(child.id(), guard.as_ref().map(Guard::id));
        let kin = kin::ProgramProcesses::of(child.id(), mark);
        Ok(Family { child, status: None, over: false, kin, guard })
    }

    /// Starts the program.
    #[cfg(not(unix))]
    pub(crate) fn start(mut command: Command) -> io::Result<Self> {
        Ok(Family { child: command.spawn()?, status: None, over: false })
    }

    /// Returns the program itself, for its pipes.
    pub(crate) fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Returns true if the program itself has ended, whether or not its children have.
    #[cfg(unix)]
    pub(crate) fn has_ended(&mut self) -> bool {
        use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

        // The program is not waited for: its process id is also its group's, and must not be reused before the group
        // was killed.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let program = WaitId::Pid(Pid::from_child(&self.child));

        // An error means that there is no such child any more. The system keeps no zombies for a process that was
        // started with SIGCHLD ignored.
        self.over || !matches!(waitid(program, options), Ok(None))
    }

    /// Returns true if the program has ended.
    #[cfg(not(unix))]
    pub(crate) fn has_ended(&mut self) -> bool {
        if self.status.is_none() {
            self.status = self.child.try_wait().ok().flatten();
        }
        self.over || self.status.is_some()
    }

    /// Returns true if a signal has stopped the program.
    #[cfg(unix)]
    pub(crate) fn is_stopped(&self) -> bool {
        use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
        let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let program = WaitId::Pid(Pid::from_child(&self.child));
        !self.over && matches!(waitid(program, options), Ok(Some(_)))
    }

    /// Returns true if a signal has stopped the program, which no signal does here.
    #[cfg(not(unix))]
    pub(crate) fn is_stopped(&self) -> bool {
        false
    }

    /// Ends the program and everything that it started. Returns the program's status, which is its own exit status if
    /// it had already ended.
    pub(crate) fn end(&mut self) -> Option<ExitStatus> {
        if self.over {
            return self.status;
        }

        #[cfg(unix)]
        self.kin.end(PATIENCE);
        #[cfg(not(unix))]
        let _ = self.child.kill();

        // Killed processes end immediately, unless the kernel blocks them, as on a disk that hangs.
        let until = Instant::now() + PATIENCE;
        while !self.has_ended() && Instant::now() < until {
            thread::sleep(Duration::from_millis(1));
        }

        #[cfg(unix)]
        let mut programs = kin::programs();
        // The guard is ended before the program is waited for, after which the program's process id may be reused.
        #[cfg(unix)]
        drop(self.guard.take());

        self.over = true;
        self.status = self.status.or(self.child.try_wait().ok().flatten());
        #[cfg(unix)]
        programs.remove(&self.child.id());
        self.status
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        self.end();
    }
}

/// Maximum time for the system to end processes that were killed.
const PATIENCE: Duration = Duration::from_secs(2);
