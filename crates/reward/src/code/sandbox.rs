//! The sandbox that programs run in: what they see, and how much they may take.

#[cfg(target_os = "linux")]
mod filter;

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

use serde::{Deserialize, Serialize};
use tempfile::TempDir;

/// What keeps a program away from everything else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SandboxKind {
    /// Namespaces of its own, made by `bwrap`: no network, no other process, and no file but the system's programs.
    #[default]
    Bwrap,
    /// Nothing. A program can do whatever you can.
    None,
}

/// How much a program may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Seconds of the processor.
    pub(super) seconds: u64,
    /// Bytes of memory of each process.
    pub(super) memory: u64,
    /// Processes and threads.
    pub(super) processes: u64,
}

/// Makes commands that run in a sandbox.
#[derive(Debug)]
pub(super) struct Sandbox {
    kind: SandboxKind,
    /// What is there besides the system's programs, at the same place.
    mounts: Vec<PathBuf>,
    /// True if this process is root. Its programs then become users of their own, because limits are not root's.
    is_root: bool,
    /// Numbers of the open files that this process has inherited, and would pass on.
    inherited: Vec<u32>,
    folder: TempDir,
    /// Number of cells so far.
    cells: AtomicU32,
}

/// A folder for one program, which sees it as its own. It is gone when dropped.
pub(super) struct Cell {
    /// What the program sees.
    inside: PathBuf,
    folder: PathBuf,
    number: u32,
}

/// Where a program finds its cell.
const HOME: &str = "/box";

/// Bytes of files that a program may write, all together.
const DISK: u64 = 64 << 20;

/// Folders of the system's programs. What of them is not there is left out.
const SYSTEM: [&str; 9] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib64",
    "/lib32",
    "/etc/alternatives",
    "/etc/ld.so.cache",
    "/nix/store",
];

const DEVICES: [&str; 4] = ["/dev/null", "/dev/zero", "/dev/random", "/dev/urandom"];

/// Closes what was inherited, and opens the files that `bwrap` gets by number: the filter of system calls, and the file
/// that it tells its state.
const WRAPPER: &str =
    r#"state=$1 filter=$2; shift 2; exec CLOSED 8>"$state" 9<"$filter"; exec "$@""#;

/// The users that the programs of root become, of which there are as many as may run at the same time.
const USERS: std::ops::Range<u32> = 58_000..60_000;

impl Sandbox {
    /// Makes a sandbox. Nothing runs in it yet.
    pub(super) fn new(kind: SandboxKind, mounts: Vec<PathBuf>) -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix("firebrick-code-").tempdir()?;
        #[cfg(target_os = "linux")]
        fs::write(folder.path().join("filter"), filter::bytes()?)?;
        let is_root = is_root();
        let inherited = inherited();
        Ok(Sandbox { kind, mounts, is_root, inherited, folder, cells: AtomicU32::new(0) })
    }

    /// Returns the folder that the sandbox has outside.
    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Makes a cell with these files, whose names and texts they are.
    pub(super) fn cell(&self, files: &[(&str, &[u8])]) -> io::Result<Cell> {
        let number = self.cells.fetch_add(1, Ordering::Relaxed);
        let folder = self.folder.path().join(number.to_string());
        let cell = Cell { inside: folder.join("inside"), folder, number };
        fs::create_dir_all(&cell.inside)?;
        for (name, text) in files {
            fs::write(cell.inside.join(name), text)?;
        }
        Ok(cell)
    }

    /// Makes a command that runs `program` in `cell`.
    pub(super) fn command(&self, cell: &Cell, program: &[String], limits: Limits) -> Command {
        let mut words: Vec<String> = Vec::new();
        if self.kind == SandboxKind::Bwrap {
            words.push("bwrap".into());
            words.extend(self.bwrap(cell));
            if self.is_root {
                words.extend(self.user(cell));
            }
        }
        words.extend(self.prlimit(limits));
        words.extend(program.iter().cloned());

        let mut command = match self.kind {
            SandboxKind::Bwrap => {
                // Only `bash` can close numbers above 9.
                let shell = if self.inherited.is_empty() { "/bin/sh" } else { "/bin/bash" };
                let closed = self.inherited.iter().map(|number| format!("{number}>&- "));
                let script = WRAPPER.replace("CLOSED", &closed.collect::<String>());
                let mut command = Command::new(shell);
                command.args(["-c", &script, "sh"]);
                command.args([cell.state(), self.folder.path().join("filter")]).args(words);
                command
            }
            SandboxKind::None => {
                let mut command = Command::new(&words[0]);
                command.args(&words[1..]).current_dir(&cell.inside);
                command.env_clear().envs(environment(&std::env::temp_dir().to_string_lossy()));
                command
            }
        };
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// Tells whether the sandbox of a program that has ended was made: else the program has never begun.
    pub(super) fn was_made(&self, cell: &Cell) -> bool {
        self.kind == SandboxKind::None
            || fs::read_to_string(cell.state()).is_ok_and(|state| state.contains("child-pid"))
    }

    /// Returns the options of `bwrap`. The program gets a file system of these folders alone, which it can't write to
    /// but for `/tmp`.
    fn bwrap(&self, cell: &Cell) -> Vec<String> {
        let mut words: Vec<String> = [
            "--die-with-parent --new-session --unshare-pid --unshare-net --unshare-ipc --unshare-uts",
            "--unshare-cgroup-try --hostname sandbox --clearenv --seccomp 9 --json-status-fd 8",
            if self.is_root { "" } else { "--unshare-user" },
        ]
        .iter()
        .flat_map(|line| line.split_whitespace().map(str::to_owned))
        .collect();
        let mut add = |option: &str, values: &[&str]| {
            words.push(option.to_owned());
            words.extend(values.iter().map(|value| (*value).to_owned()));
        };

        for (name, value) in environment("/tmp") {
            add("--setenv", &[name, &value]);
        }
        for folder in ["/dev", "/etc", "/nix"] {
            add("--perms", &["0755"]);
            add("--dir", &[folder]);
        }
        for folder in SYSTEM {
            add("--ro-bind-try", &[folder, folder]);
        }
        for device in DEVICES {
            add("--dev-bind", &[device, device]);
        }
        add("--size", &[&DISK.to_string()]);
        add("--perms", &["1777"]);
        add("--tmpfs", &["/tmp"]);
        for mount in &self.mounts {
            // The folders above it would be its owner's alone.
            let above: Vec<&Path> = mount.ancestors().skip(1).collect();
            for folder in above.iter().rev().filter(|folder| folder.parent().is_some()) {
                add("--perms", &["0755"]);
                add("--dir", &[&folder.to_string_lossy()]);
            }
            let mount = mount.to_string_lossy();
            add("--ro-bind", &[&mount, &mount]);
        }
        add("--ro-bind", &[&cell.inside.to_string_lossy(), HOME]);
        add("--chdir", &[HOME]);
        add("--remount-ro", &["/"]);
        words.push("--".into());
        words
    }

    /// Returns the command that makes root's program another user's.
    fn user(&self, cell: &Cell) -> Vec<String> {
        let user = USERS.start + cell.number % (USERS.end - USERS.start);
        let words = format!(
            "setpriv --reuid={user} --regid={user} --clear-groups --inh-caps=-all --bounding-set=-all --no-new-privs"
        );
        words.split(' ').map(str::to_owned).collect()
    }

    /// Returns the command that limits what a program takes.
    fn prlimit(&self, limits: Limits) -> Vec<String> {
        if !cfg!(target_os = "linux") {
            return Vec::new();
        }
        let Limits { seconds, memory, processes } = limits;
        // The first process of a namespace waits for the others, and counts too. Without a namespace, all the user's do.
        let processes = match self.kind {
            SandboxKind::Bwrap => format!("--nproc={}", processes + 1),
            SandboxKind::None => "--nofile=256".into(),
        };
        // Who does not end at the first signal, a second later gets one that nobody can ignore.
        let seconds = format!("--cpu={seconds}:{}", seconds + 1);
        let (memory, disk) = (format!("--as={memory}"), format!("--fsize={DISK}"));
        ["prlimit", "--core=0", "--nofile=256", &processes, &seconds, &memory, &disk]
            .map(str::to_owned)
            .to_vec()
    }
}

impl Cell {
    /// Where `bwrap` tells its state.
    fn state(&self) -> PathBuf {
        self.folder.join("state")
    }
}

impl Drop for Cell {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The variables that a program has. Hashes have a seed, so that the same program writes the same.
fn environment(folder: &str) -> Vec<(&'static str, String)> {
    [
        ("PATH", "/usr/local/bin:/usr/bin:/bin"),
        ("HOME", folder),
        ("TMPDIR", folder),
        ("LANG", "C.UTF-8"),
        ("PYTHONHASHSEED", "0"),
        ("PYTHONUTF8", "1"),
        ("OMP_NUM_THREADS", "1"),
        ("OPENBLAS_NUM_THREADS", "1"),
    ]
    .map(|(name, value)| (name, value.to_owned()))
    .to_vec()
}

/// Returns the numbers of open files that a new process inherits, other than its standard ones. This process opens none
/// of that kind itself.
fn inherited() -> Vec<u32> {
    const CLOSE_ON_EXEC: u32 = 0o2_000_000;
    let is_passed_on = |number: &u32| {
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{number}")).unwrap_or_default();
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
        let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
        *number > 2 && flags.is_some_and(|flags| flags & CLOSE_ON_EXEC == 0)
    };
    let open = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let numbers = open.filter_map(|it| it.file_name().to_str()?.parse().ok());
    numbers.filter(is_passed_on).collect()
}

#[cfg(unix)]
fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[cfg(not(unix))]
fn is_root() -> bool {
    false
}

/// Returns the folders that an interpreter of Python reads, besides the system's, and its path.
///
/// # Errors
/// Says why it can't be asked.
pub(super) fn interpreter(python: &str) -> Result<(String, Vec<PathBuf>), String> {
    const ASK: &str =
        "import sys\nfor it in (sys.executable, sys.prefix, sys.base_prefix): print(it)";
    let asked = Command::new(python).args(["-c", ASK]).stdin(Stdio::null()).output();
    let asked = asked.map_err(|error| format!("`{python}` can't be started: {error}"))?;
    let text = String::from_utf8_lossy(&asked.stdout);
    let lines: Vec<&str> = text.lines().collect();
    let [executable, prefixes @ ..] = lines.as_slice() else {
        let problem = String::from_utf8_lossy(&asked.stderr);
        return Err(format!("`{python}` is no Python: {}", problem.trim()));
    };

    let is_there = |prefix: &Path| SYSTEM.iter().any(|folder| prefix.starts_with(folder));
    let mut mounts: Vec<PathBuf> = prefixes.iter().map(PathBuf::from).collect();
    mounts.retain(|prefix| !is_there(prefix));
    mounts.dedup();
    if let Some(wide) = mounts.iter().find(|prefix| prefix.components().count() < 3) {
        return Err(format!(
            "`{python}` is installed in {}, all of which a program would see",
            wide.display()
        ));
    }
    Ok(((*executable).to_owned(), mounts))
}
