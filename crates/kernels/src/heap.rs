//! Keeps the memory of dropped tensors for new ones, on the CPU, and returns it to the system on request.

use std::sync::Once;

/// Makes the process keep the memory of dropped tensors for the next ones. Otherwise every large tensor is requested
/// from the system again, and its pages are zeroed and mapped one by one. Memory that was once in use is kept by the
/// process.
///
/// Meant for computing on the CPU with the GNU C library, whose allocator requests memory in this way; elsewhere,
/// nothing happens. Only the first call has an effect.
pub fn keep_memory() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        #[cfg(all(target_os = "linux", target_env = "gnu", not(miri)))]
        {
            const MIB: i32 = 1 << 20;

            let settings = [
                // The allocator does not accept a larger threshold than this.
                (libc::M_MMAP_THRESHOLD, 32 * MIB),
                (libc::M_TRIM_THRESHOLD, 1024 * MIB),
                (libc::M_TOP_PAD, 16 * MIB),
            ];

            for (setting, bytes) in settings {
                // SAFETY: the function takes two numbers and its own lock, and does not change other settings.
                #[allow(unsafe_code)]
                unsafe {
                    libc::mallopt(setting, bytes);
                }
            }
        }
    });
}

/// Returns to the system the memory that [`keep_memory`] keeps, unless something still holds it.
pub fn give_memory_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu", not(miri)))]
    // SAFETY: the function takes a number and the allocator's own locks; allocated memory does not move.
    #[allow(unsafe_code)]
    unsafe {
        libc::malloc_trim(0);
    }
}
