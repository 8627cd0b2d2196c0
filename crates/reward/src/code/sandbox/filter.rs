//! The system calls that no program needs, and by which it could look at others or find holes in the kernel.

use std::{collections::BTreeMap, io};

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq,
    SeccompCondition, SeccompFilter, SeccompRule,
};

/// Returns the filter as the kernel reads it.
///
/// # Errors
/// Fails on a processor whose system calls are not known.
pub(super) fn bytes() -> io::Result<Vec<u8>> {
    let wrong = |error: BackendError| io::Error::other(error);
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        REFUSED.iter().map(|call| (*call, Vec::new())).collect();

    // A program in a namespace of its own would have the powers of root there.
    let namespaces = [
        libc::CLONE_NEWUSER,
        libc::CLONE_NEWNS,
        libc::CLONE_NEWPID,
        libc::CLONE_NEWNET,
        libc::CLONE_NEWIPC,
        libc::CLONE_NEWUTS,
        libc::CLONE_NEWCGROUP,
    ];
    let has_flag = |flag: i32| {
        let flag = flag as u64;
        SeccompRule::new(vec![SeccompCondition::new(0, Dword, MaskedEq(flag), flag)?])
    };
    let with_flag: Result<Vec<SeccompRule>, _> = namespaces.into_iter().map(has_flag).collect();
    rules.insert(libc::SYS_clone, with_flag.map_err(wrong)?);

    // The same calls have a second number each, for programs with pointers of 32 bits.
    #[cfg(target_arch = "x86_64")]
    rules.extend(rules.clone().into_iter().map(|(call, rules)| (call | 0x4000_0000, rules)));

    // A library does without what is unknown: without `clone3`, whose flags no filter can read, it uses `clone`.
    let unknown = SeccompAction::Errno(libc::ENOSYS as u32);
    let arch = std::env::consts::ARCH.try_into().map_err(wrong)?;
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, unknown, arch).map_err(wrong)?;
    let program: BpfProgram = filter.try_into().map_err(wrong)?;
    let step = |step: &seccompiler::sock_filter| {
        let (code, k) = (step.code.to_ne_bytes(), step.k.to_ne_bytes());
        [code[0], code[1], step.jt, step.jf, k[0], k[1], k[2], k[3]]
    };
    Ok(program.iter().flat_map(step).collect())
}

const REFUSED: &[i64] = &[
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_send_signal,
    libc::SYS_kcmp,
    // Networks. The namespace has none, and no program needs the code behind these.
    libc::SYS_socket,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_listen,
    // File systems and namespaces.
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_clone3,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_quotactl,
    libc::SYS_fanotify_init,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_mknodat,
    // Parts of the kernel that faults were found in again and again.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_vmsplice,
    libc::SYS_move_pages,
    libc::SYS_migrate_pages,
    libc::SYS_personality,
    // Memory that belongs to no process, and that no limit of a process counts.
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_msgget,
    libc::SYS_semget,
    libc::SYS_mq_open,
    libc::SYS_memfd_create,
    libc::SYS_memfd_secret,
    // The machine.
    libc::SYS_reboot,
    libc::SYS_kexec_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_acct,
    libc::SYS_syslog,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_mknod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
];
