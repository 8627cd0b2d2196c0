//! Guard of a program, which ends it if this process is killed.

use std::{
    io::Write as _,
    process::{Child, Command, Stdio},
};

use super::kin::Mark;

/// Shell that waits for the end of its stdin, which only this process holds open, and then kills a program and
/// everything that it started. Otherwise a hung program would outlive a killed run, and keep its resources.
pub(super) struct Guard(Child);

/// Ends what the file `kin.rs` ends, and in the same way, as far as a shell can. A round kills the program's group, all
/// its descendants, and all processes with its mark. Rounds continue until nothing with the mark is left, because a
/// process may have started another meanwhile.
const SCRIPT: &str = r#"
    read -r leader
    read -r _

    table() {
        if [ -r /proc/self/stat ]; then
            for file in /proc/[0-9]*/stat; do
                read -r line <"$file" || continue
                set -- ${line##*) }
                echo "${line%% *} $2"
            done
        else
            ps -A -o pid= -o ppid=
        fi
    }

    below() {
        found=" $leader "
        all=$(table)
        more=yes
        while [ "$more" ]; do
            more=
            set -- $all
            while [ $# -gt 1 ]; do
                case $found in
                    *" $1 "*) ;;
                    *" $2 "*) found="$found$1 " more=yes ;;
                esac
                shift 2
            done
        done
        echo "$found"
    }

    marked() {
        for file in $(grep -lsF -e "$0" /proc/[0-9]*/environ); do
            file=${file#/proc/}
            echo "${file%/environ}"
        done
    }

    # A program whose stdin has ended is about to end too, and its children would be nobody's.
    [ "$leader" ] && kill -s STOP -- "-$leader"
    [ "$leader" ] && doomed=$(below)
    round=0
    while [ $round -lt 50 ]; do
        more=$(marked)
        [ "$leader" ] && kill -s KILL -- "-$leader"
        kill -s KILL $doomed $more
        [ "$more" ] || break
        doomed=
        round=$((round + 1))
    done
"#;

impl Guard {
    /// Starts a guard for all processes that will have this mark. On a system without a shell there is none, and a
    /// program then ends with its stdin or not at all.
    pub(super) fn new(mark: &Mark) -> Option<Self> {
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", SCRIPT, &mark.entry()]);
        shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());

        // It needs nothing from the environment but the path to `grep` and `ps`.
        let path = std::env::var_os("PATH");
        shell.env_clear().envs(path.map(|path| ("PATH", path)));

        // A signal for the run's group, such as Ctrl-C, does not reach the guard.
        std::os::unix::process::CommandExt::process_group(&mut shell, 0);
        shell.spawn().ok().map(Guard)
    }

    /// Sends the guard the process id of the program, which is also its group's.
    pub(super) fn watch(&mut self, program: u32) {
        if let Some(stdin) = &mut self.0.stdin {
            // If the guard is gone, the program runs without one.
            let _ = writeln!(stdin, "{program}");
        }
    }

    pub(super) fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
