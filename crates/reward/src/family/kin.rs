//! Processes that a program started, found and ended.
//!
//! A process may leave the program that started it in many ways: by starting its own group or session, or by a parent
//! that ends first. So no single criterion finds all of them. A process belongs to a program
//! - if it is in the program's group,
//! - if it descends from the program, or from another that belongs to it,
//! - on Linux, if it has the program's mark in its environment,
//! - and if it is an orphan that this process has adopted ([`super::become_subreaper`]), and no other program could
//!   have started it.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{BuildHasher as _, Hasher as _, RandomState},
    sync::{
        LazyLock, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::process::{
    Pid, Signal, WaitOptions, getpgrp, kill_process, kill_process_group, waitpid,
};

/// Marks the environment of a program and of all that it starts, which shows what they belong to.
pub(super) struct Mark {
    /// Value of the variable. No other program has it, on this machine and in its containers.
    pub(super) value: String,
}

impl Mark {
    pub(super) const VARIABLE: &str = "FIREBRICK_JUDGE";

    pub(super) fn new() -> Self {
        static OF_PROCESS: LazyLock<u64> =
            LazyLock::new(|| RandomState::new().build_hasher().finish());
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);

        // With the point at its end it is not a prefix of another.
        Mark { value: format!("{:016x}-{count}.", *OF_PROCESS) }
    }

    /// Returns the entry as it is written in the environment.
    pub(super) fn entry(&self) -> String {
        format!("{}={}", Self::VARIABLE, self.value)
    }
}

/// Programs that run now, each with its guard. The list is locked while a program is started, so that the new processes
/// are not mistaken for orphans.
static PROGRAMS: Mutex<BTreeMap<u32, Option<u32>>> = Mutex::new(BTreeMap::new());

pub(super) fn programs() -> MutexGuard<'static, BTreeMap<u32, Option<u32>>> {
    PROGRAMS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// When the first program was started. Older children existed before, such as those of a shell that has become this
/// process.
static FIRST: AtomicU64 = AtomicU64::new(u64::MAX);

/// True if orphans become children of this process.
static ADOPTS: AtomicBool = AtomicBool::new(false);

/// Makes orphans below this process its children, if the system can.
pub(super) fn become_subreaper() {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{getpid, set_child_subreaper};
        ADOPTS.store(set_child_subreaper(Some(getpid())).is_ok(), Ordering::Relaxed);
    }
}

/// Everything that belongs to one program.
pub(super) struct ProgramProcesses {
    program: u32,
    mark: Mark,
    /// When the program was started, in ticks of the system. Nothing older belongs to it.
    since: u64,
}

impl ProgramProcesses {
    /// Finds out when `program` was started. It must not be waited for yet.
    pub(super) fn of(program: u32, mark: Mark) -> Self {
        let since = process(program).map_or(0, |process| process.since);
        FIRST.fetch_min(since, Ordering::Relaxed);
        ProgramProcesses { program, mark, since }
    }

    /// Kills the program and all that belongs to it, and returns when they have ended, at the latest after `patience`.
    /// The program must not be waited for yet: its process id is also its group's, and must not be reused.
    pub(super) fn end(&self, patience: Duration) {
        // Pauses grow, because most families end in the first round and some take seconds.
        let until = Instant::now() + patience;
        let mut pause = Duration::from_millis(1);
        loop {
            // A process that is started after this scan is found by the next one.
            let programs = programs();
            let all_processes = processes();
            let members = self.members(&all_processes, &programs);

            if let Some(group) = number(self.program) {
                let _ = kill_process_group(group, Signal::KILL);
            }
            for member in members.iter().copied().filter_map(number) {
                let _ = kill_process(member, Signal::KILL);
            }

            bury(&all_processes, &programs);
            drop(programs);

            if members.is_empty() || Instant::now() >= until {
                return;
            }

            thread::sleep(pause);
            pause = (2 * pause).min(Duration::from_millis(50));
        }
    }

    /// Returns the processes that belong to the program and have not ended.
    fn members(&self, all: &[Process], programs: &BTreeMap<u32, Option<u32>>) -> BTreeSet<u32> {
        let alone = programs.keys().all(|program| *program == self.program);
        let takes_orphans = alone && ADOPTS.load(Ordering::Relaxed);
        let own_id = std::process::id();

        // An orphan may be that of an earlier program. Nothing else here is older than the program.
        let is_own = |it: &&Process| {
            it.since >= self.since
                && (it.group == self.program
                    || it.id == self.program
                    || has_mark(it.id, &self.mark))
        };

        let is_taken = |it: &&Process| takes_orphans && is_orphan(it, programs);
        let others = || all.iter().filter(|it| it.id != own_id);
        let members = others().filter(|it| is_taken(it) || is_own(it));
        let mut members: BTreeSet<u32> = members.map(|it| it.id).collect();

        // Only running processes lead to others, because one that has ended has no children any more.
        loop {
            let before = members.len();
            let children = others().filter(|it| members.contains(&it.parent)).map(|it| it.id);
            let children: Vec<u32> = children.collect();
            members.extend(children);
            if members.len() == before {
                break;
            }
        }

        members.retain(|id| all.iter().any(|it| it.id == *id && !it.has_ended));
        members
    }
}

/// Returns true for a child of this process that was not started by it: this process starts only programs and guards in
/// separate groups.
fn is_orphan(process: &Process, programs: &BTreeMap<u32, Option<u32>>) -> bool {
    let Process { id, parent, group, since, .. } = *process;
    // Programs and their guards are children of this process, too, and are waited for elsewhere.
    let known = programs.iter().any(|(program, guard)| *program == id || *guard == Some(id));
    let is_young = since >= FIRST.load(Ordering::Relaxed);
    parent == std::process::id() && is_young && !known && number(group) != Some(getpgrp())
}

/// Waits for adopted orphans that have ended. Otherwise their process ids would be taken for as long as this process
/// lives.
fn bury(all: &[Process], programs: &BTreeMap<u32, Option<u32>>) {
    if ADOPTS.load(Ordering::Relaxed) {
        let dead = all.iter().filter(|it| it.has_ended && is_orphan(it, programs));
        for orphan in dead.filter_map(|it| number(it.id)) {
            let _ = waitpid(Some(orphan), WaitOptions::NOHANG);
        }
    }
}

/// Waits for adopted orphans that have ended, about once a second while a verifier is busy.
pub(crate) fn bury_orphans() {
    static LAST: Mutex<Option<Instant>> = Mutex::new(None);

    if !ADOPTS.load(Ordering::Relaxed) {
        return;
    }
    let Ok(mut last) = LAST.try_lock() else { return };
    if last.is_none_or(|last| last.elapsed() > Duration::from_secs(1)) {
        bury(&processes(), &programs());
        *last = Some(Instant::now());
    }
}

/// A process of the system.
#[derive(Clone, Debug, PartialEq)]
struct Process {
    id: u32,
    parent: u32,
    group: u32,
    /// When it was started, in ticks since boot; 0 if the system does not say.
    since: u64,
    /// True if it has ended, and its parent has not asked for its status yet.
    has_ended: bool,
}

fn number(id: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(id).ok()?)
}

/// Returns all processes that can be seen.
#[cfg(target_os = "linux")]
fn processes() -> Vec<Process> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| process(entry.file_name().to_str()?.parse().ok()?)).collect()
}

#[cfg(target_os = "linux")]
fn process(id: u32) -> Option<Process> {
    let text = std::fs::read(format!("/proc/{id}/stat")).ok()?;
    of_stat(id, &String::from_utf8_lossy(&text))
}

/// Reads `/proc/…/stat`. The second field is the program's name in brackets, and may have brackets and blanks
/// itself.
#[cfg(target_os = "linux")]
fn of_stat(id: u32, text: &str) -> Option<Process> {
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    Some(Process {
        id,
        has_ended: matches!(*fields.first()?, "Z" | "X" | "x"),
        parent: fields.get(1)?.parse().ok()?,
        group: fields.get(2)?.parse().ok()?,
        since: fields.get(19)?.parse().ok()?,
    })
}

#[cfg(target_os = "linux")]
fn has_mark(id: u32, mark: &Mark) -> bool {
    // The environment of another user's process can't be read, nor can such a process be killed.
    let environment = std::fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
    memchr::memmem::find(&environment, mark.entry().as_bytes()).is_some()
}

/// Asks `ps`, which every system has.
#[cfg(not(target_os = "linux"))]
fn processes() -> Vec<Process> {
    let columns = ["-A", "-o", "pid=", "-o", "ppid=", "-o", "pgid=", "-o", "stat="];
    let Ok(output) = std::process::Command::new("ps").args(columns).output() else {
        return Vec::new();
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let read = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let mut number = || fields.next()?.parse().ok();
        let id = number()?;
        let parent = number()?;
        let group = number()?;
        let has_ended = fields.next()?.starts_with('Z');
        Some(Process { id, parent, group, since: 0, has_ended })
    };

    text.lines().filter_map(read).collect()
}

#[cfg(not(target_os = "linux"))]
fn process(_: u32) -> Option<Process> {
    None
}

#[cfg(not(target_os = "linux"))]
fn has_mark(_: u32, _: &Mark) -> bool {
    false
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_hides_nothing() {
        let text = "71 (a) R 1 (b)) Z 7 70 70 0 -1 4 0 0 0 0 0 0 0 0 20 0 1 0 4242 0";
        let read = Process { id: 71, parent: 7, group: 70, since: 4242, has_ended: true };
        assert_eq!(of_stat(71, text), Some(read));
        for text in ["", "71 (sh", "71 (sh) R 7", "71 (sh) R x 70 70 0"] {
            assert_eq!(of_stat(71, text), None, "{text}");
        }
    }
}
