/* How a static program looks up the names of hosts: in /etc/hosts and by DNS.

   The C library would load whatever modules the system's nsswitch.conf names, and those are made for the system's own version of the library.
   With another one, which is what a static program brings along, they crash it. */

#include <nss.h>

__attribute__((constructor)) static void look_names_up_without_modules(void)
{
    (void) __nss_configure_lookup("hosts", "files dns");
}
