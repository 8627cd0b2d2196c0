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
    folder: TempDir,
    /// Number of cells so far.
    cells: AtomicU32,
}

/// A folder for one program, which sees it as its own. It is gone when dropped.
pub(super) struct Cell {
    /// What the program sees.
    inside: PathBuf,
    folder: PathBuf,
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

/// The users that the programs of root become.
const USERS: std::ops::Range<u32> = 58_000..60_000;

impl Sandbox {
    /// Makes a sandbox. Nothing runs in it yet.
    pub(super) fn new(kind: SandboxKind, mounts: Vec<PathBuf>) -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix("firebrick-code-").tempdir()?;
        #[cfg(target_os = "linux")]
        if kind == SandboxKind::Bwrap {
            fs::write(folder.path().join("filter"), filter::bytes()?)?;
        }
        let is_root = is_root();
        Ok(Sandbox { kind, mounts, is_root, folder, cells: AtomicU32::new(0) })
    }

    /// Returns the folder that the sandbox has outside.
    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Makes a cell with these files, whose names and texts they are.
    pub(super) fn cell(&self, files: &[(&str, &[u8])]) -> io::Result<Cell> {
        let number = self.cells.fetch_add(1, Ordering::Relaxed);
        let folder = self.folder.path().join(number.to_string());
        let cell = Cell { inside: folder.join("inside"), folder };
        fs::create_dir_all(&cell.inside)?;
        for (name, text) in files {
            fs::write(cell.inside.join(name), text)?;
            open_to_all(&cell.inside.join(name), 0o644)?;
        }
        open_to_all(&cell.inside, 0o755)?;
        Ok(cell)
    }

    /// Makes a command that runs `program` in `cell`. It ends with the thread that starts it.
    pub(super) fn command(&self, cell: &Cell, program: &[String], limits: Limits) -> Command {
        // Who does not end at the first signal, a second later gets one that nobody can ignore.
        let seconds = format!("--cpu={}:{}", limits.seconds, limits.seconds + 1);
        self.wrapped(cell, program, limits, &[seconds], true)
    }

    /// Makes a command for a program that outlives the thread that starts it, and has no limit of seconds.
    pub(super) fn server(&self, cell: &Cell, program: &[String], limits: Limits) -> Command {
        // The server and its copy come on top of what a test may start.
        let limits = Limits { processes: limits.processes + 2, ..limits };
        self.wrapped(cell, program, limits, &[], false)
    }

    fn wrapped(
        &self,
        cell: &Cell,
        program: &[String],
        limits: Limits,
        further: &[String],
        ends: bool,
    ) -> Command {
        let mut words: Vec<String> = Vec::new();
        if self.kind == SandboxKind::Bwrap {
            words.push("bwrap".into());
            words.extend(ends.then(|| "--die-with-parent".into()));
            words.extend(self.bwrap(cell));
            if self.is_root {
                words.extend(user());
            }
        }
        if cfg!(target_os = "linux") {
            words.extend(["prlimit", "--core=0", "--nofile=256"].map(str::to_owned));
            words.extend([format!("--fsize={DISK}"), format!("--as={}", limits.memory)]);
            // The first process of a namespace waits for the others, and counts too, unless it is root's and they are not.
            // Without a namespace, all the user's count.
            let processes = limits.processes + u64::from(!self.is_root);
            let processes = format!("--nproc={processes}");
            words.extend((self.kind == SandboxKind::Bwrap).then_some(processes));
            words.extend(further.iter().cloned());
        }
        words.extend(program.iter().cloned());

        let mut command = match self.kind {
            SandboxKind::Bwrap => {
                let inherited = inherited();
                // Only `bash` can close numbers above 9.
                let shell = if inherited.is_empty() { "sh" } else { "bash" };
                let closed = inherited.iter().map(|number| format!("{number}>&- "));
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

    /// Tells whether a program that is over has begun. `killed` is true if it was ended, and not by itself.
    pub(super) fn was_made(&self, cell: &Cell, killed: bool) -> bool {
        let state = || fs::read_to_string(cell.state()).unwrap_or_default();
        // `bwrap` writes the first before the sandbox is made, and the second when a program in it has ended.
        let sign = if killed { "child-pid" } else { "exit-code" };
        self.kind == SandboxKind::None || state().contains(sign)
    }

    /// Returns the options of `bwrap`. The program gets a file system of these folders alone, which it can't write to
    /// but for `/tmp`.
    fn bwrap(&self, cell: &Cell) -> Vec<String> {
        let mut words: Vec<String> = [
            "--new-session --unshare-pid --unshare-net --unshare-ipc --unshare-uts",
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

/// Returns the command that makes root's program another user's. Nearly every program is a user of its own, so that
/// limits of processes are a program's.
fn user() -> Vec<String> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number =
        std::process::id().wrapping_mul(97).wrapping_add(COUNT.fetch_add(1, Ordering::Relaxed));
    let user = USERS.start + number % (USERS.end - USERS.start);
    let words = format!(
        "setpriv --reuid={user} --regid={user} --clear-groups --inh-caps=-all --bounding-set=-all --no-new-privs"
    );
    words.split(' ').map(str::to_owned).collect()
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

/// Returns the numbers of open files that a new process inherits, other than its standard ones.
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

/// Lets any user read a file, or enter a folder, whatever the mode of new files is.
fn open_to_all(path: &Path, mode: u32) -> io::Result<()> {
    #[cfg(unix)]
    fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode))?;
    #[cfg(not(unix))]
    let _ = (path, mode);
    Ok(())
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
    // An interpreter that is installed in somebody's home, or above it, would show all of it.
    let own = [std::env::home_dir(), std::env::current_dir().ok()];
    let is_wide = |prefix: &&PathBuf| own.iter().flatten().any(|folder| folder.starts_with(prefix));
    if let Some(wide) = mounts.iter().find(is_wide) {
        return Err(format!(
            "`{python}` is installed in {}, all of which a program would see",
            wide.display()
        ));
    }
    Ok(((*executable).to_owned(), mounts))
}
