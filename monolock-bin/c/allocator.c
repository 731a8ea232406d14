/* How jemalloc, the program's allocator, is set up. It looks for this name, and the environment's _RJEM_MALLOC_CONF goes before it.

   A thread of its own gives freed pages back, since a server that nobody calls any more allocates no more, and no other thread would come by. */

const char *_rjem_malloc_conf = "background_thread:true,narenas:2,dirty_decay_ms:500,muzzy_decay_ms:0";
