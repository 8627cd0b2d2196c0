//! Keeps the memory of dropped tensors for new ones, on the CPU, and gives it back on request.

use std::sync::Once;

/// Makes the process keep the memory that tensors gave back for the next tensors. Otherwise the system is asked
/// for every large tensor again, and its pages are zeroed and mapped one by one. Memory that was in use once stays
/// with the process.
///
/// It is for computing on the CPU with the GNU C library, whose allocator asks the system in this way; elsewhere
/// it does nothing. Only the first call counts.
pub fn keep_memory() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        #[cfg(all(target_os = "linux", target_env = "gnu", not(miri)))]
        {
            const MIB: i32 = 1 << 20;
            let settings = [
                // This is the largest threshold that it takes.
                (libc::M_MMAP_THRESHOLD, 32 * MIB),
                (libc::M_TRIM_THRESHOLD, 1024 * MIB),
                (libc::M_TOP_PAD, 16 * MIB),
            ];
            for (setting, bytes) in settings {
                // SAFETY: the function takes two numbers and a lock of its own, and changes no other setting.
                #[allow(unsafe_code)]
                unsafe {
                    libc::mallopt(setting, bytes);
                }
            }
        }
    });
}

/// Gives the system the memory that [`keep_memory`] keeps, as far as nothing holds it.
pub fn give_memory_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu", not(miri)))]
    // SAFETY: the function takes a number and the allocator's own locks; allocated memory stays where it is.
    #[allow(unsafe_code)]
    unsafe {
        libc::malloc_trim(0);
    }
}
