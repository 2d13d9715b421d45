/* Linked into the static binary. A static glibc has the name services `files` and `dns`, but it would
   load the shared libraries of all others that /etc/nsswitch.conf names. They may not exist, or belong
   to another version of glibc. */

int __nss_configure_lookup(const char *database, const char *services);

__attribute__((constructor)) static void use_linked_name_services(void) {
    __nss_configure_lookup("hosts", "files dns");
}
