/* How jemalloc, the program's allocator, is set up. It looks for this name, and the environment's _RJEM_MALLOC_CONF goes before it.

   Pages that have not been used for half a second go back to the system. */

const char *_rjem_malloc_conf = "narenas:2,dirty_decay_ms:500,muzzy_decay_ms:0";
