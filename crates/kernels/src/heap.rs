use std::sync::Once;

/// Has the process keep the memory that tensors gave back for the next ones, instead of asking the system for every large
/// tensor anew, whose pages are then zeroed and mapped one by one. Memory that was in use once stays the process's.
///
/// It is for computing on the CPU with the C library of GNU, whose allocator is the one that does that; elsewhere it does
/// nothing. The first call counts.
pub fn keep_memory() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        #[cfg(all(target_os = "linux", target_env = "gnu", not(miri)))]
        {
            const MIB: i32 = 1 << 20;
            let settings = [
                // The largest that it takes.
                (libc::M_MMAP_THRESHOLD, 32 * MIB),
                (libc::M_TRIM_THRESHOLD, 1024 * MIB),
                (libc::M_TOP_PAD, 16 * MIB),
            ];
            for (setting, bytes) in settings {
                // SAFETY: the function takes two numbers and a lock of its own; what it is not given is left as it was.
                #[allow(unsafe_code)]
                unsafe {
                    libc::mallopt(setting, bytes);
                }
            }
        }
    });
}

/// Gives the system what [`keep_memory`] keeps, as far as nothing holds it.
pub fn give_memory_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu", not(miri)))]
    // SAFETY: the function takes a number and the allocator's own locks; what is allocated stays where it is.
    #[allow(unsafe_code)]
    unsafe {
        libc::malloc_trim(0);
    }
}
