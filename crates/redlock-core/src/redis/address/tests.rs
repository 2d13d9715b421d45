//! Addresses and their mistakes.

use super::*;

#[test]
fn the_name_is_the_address_without_user_password_and_database() {
    for (url, name) in [
        ("redis://10.0.0.1", "10.0.0.1:6379"),
        ("redis://me:secret@Host.example:7001/3", "host.example:7001"),
        ("rediss://:secret@host:1", "host:1"),
        ("redis://[::1]:7001", "[::1]:7001"),
        ("unix:///run/redis.sock?db=2&pass=secret", "/run/redis.sock"),
        ("valkey://h:2", "h:2"),
    ] {
        assert_eq!(Address::parse(url).unwrap().name, name);
    }
}

#[test]
fn the_login_is_decoded() {
    let login = Address::parse("redis://me:p%40ss@h:1/5").unwrap().login;
    assert_eq!(login.username.as_deref(), Some("me"));
    assert_eq!(login.password.as_deref(), Some("p@ss"));
    assert_eq!(login.db, 5);
}

#[test]
fn only_the_last_at_sign_ends_a_password() {
    let address = Address::parse("redis://me:p@ss@h:1").unwrap();
    assert_eq!((address.login.password.as_deref(), &*address.name), (Some("p@ss"), "h:1"));
}

#[test]
fn a_plus_sign_is_literal_in_every_form_of_a_url() {
    for url in
        ["redis://a+b:c+d@h:1", "unix:///s?user=a+b&pass=c+d", "unix:///s?user=a%2Bb&pass=c%2bd"]
    {
        let login = Address::parse(url).unwrap().login;
        assert_eq!(login.username.as_deref(), Some("a+b"), "{url}");
        assert_eq!(login.password.as_deref(), Some("c+d"), "{url}");
    }
}

#[test]
fn an_empty_user_or_password_is_none_in_every_form_of_a_url() {
    for (url, password) in [
        ("redis://:@h", None),
        ("redis://:pw@h", Some("pw")),
        ("unix:///s?user=&pass=", None),
        ("unix:/s?pass=", None),
        ("unix:///s?user=&pass=pw", Some("pw")),
    ] {
        let login = Address::parse(url).unwrap().login;
        assert_eq!((login.username, login.password.as_deref()), (None, password), "{url}");
    }
}

#[test]
fn name_of_a_socket_has_no_line_end() {
    assert_eq!(Address::parse("unix:///run/a%0Ab").unwrap().name, "/run/a\\nb");
}

#[test]
fn malformed_urls_are_refused_with_reason_and_expected_form() {
    for (url, why) in [
        ("", "it is empty"),
        ("10.0.0.1:6379", "no scheme, such as redis://"),
        ("localhost:6379", "no scheme"),
        ("http://h:1", "scheme is not redis"),
        ("redis://", "no host"),
        ("redis://:7001", "no host"),
        ("redis://h:99999", "port is not a number from 1 to 65535"),
        ("redis://h:0", "port is not a number"),
        ("redis://h:", "port is not a number"),
        ("redis://h:+21001", "port is not a number"),
        ("redis://user%3Apw%40host", "encode only the user and the password"),
        ("redis://user%3Apw@host", "the : between them is not encoded"),
        ("redis://me:p%ffw@h", "decoded, is not UTF-8"),
        ("redis://m%e4:pw@h", "decoded, is not UTF-8"),
        ("unix:///s?user=me&pass=p%ffw", "decoded, is not UTF-8"),
        ("unix:/s?user=m%e4&pass=pw", "decoded, is not UTF-8"),
        ("unix:///s?user=me&pass=", "a user but no password"),
        ("unix://", "it has no path"),
        ("unix:///?db=1", "it has no path"),
        ("unix:/", "it has no path"),
        ("unix:/s?password=x", "unknown option after the ?"),
        ("unix://run/redis.sock", "begins after two slashes"),
        ("unix://me%3Apw%40/s", "write user and password as ?user=USER"),
        ("redis://h/-1", "not a number from 0 to 2147483647"),
        ("redis://h/+1", "not a number from 0 to 2147483647"),
        ("redis://h/2147483648", "not a number from 0 to 2147483647"),
        ("unix:///s?db=-1", "not a number from 0 to 2147483647"),
        ("redis://h?protocol=resp3&protocol=resp2", "is repeated; write each once"),
        ("unix:///s?pass=a&db=1&pass=b", "is repeated; write each once"),
        ("redis://[::1]:x", "port is not a number"),
        ("redis://me:secret/0", "a password would end with @"),
        ("redis://:p@s/s@h:1", "/ as %2F"),
        ("redis://:p?ss@h:1", "? as %3F"),
        ("redis://:p#ss@h:1", "# as %23"),
        ("a,b", "--node accepts one URL"),
        ("redis://h:1,redis://i:1", "--node accepts one URL"),
        ("redis://:p@h,i", "--node accepts one URL"),
        ("unix:///s,unix:///t", "--node accepts one URL"),
        ("redis://h :1", "a space in it"),
        ("redis://h:1 redis://i:1", "several URLs: separate them with commas"),
        ("redis://h:1;redis://i:1", "several URLs: separate them with commas"),
        ("redis://h:1\\nrediss://i:1", "several URLs: separate them with commas"),
        ("redis://h:1, redis://i:1", "--node accepts one URL"),
        ("redis://h:1 # the first", "a comment after it"),
        ("redis://h:1\t#first", "a comment after it"),
        ("redis://h/x", "database, after the /, is not a number"),
        ("redis://h?db=5", "unknown option after the ?; only protocol"),
        ("redis://h?protocol=resp3&timeout=1", "unknown option"),
        ("redis://h?protocol=resp4", "its protocol is not resp2 or resp3"),
        ("unix:///s?protocol", "its protocol is not resp2 or resp3"),
        ("unix:///s?db=x", "its db is not a number"),
        ("unix:///s?password=x", "unknown option after the ?; db, user, pass"),
        ("rediss://h#insecure", "set the CA instead"),
        ("redis://h#1", "in a password, write # as %23"),
        ("redis://0.0.0.0", "a wildcard address"),
        ("redis://me@h", "a user but no password"),
        ("redis://me:@h", "with `nopass`, write any password"),
        ("redis://::1", "in brackets, such as [::1]:6379"),
        ("redis://fe80::1:6379", "in brackets"),
        ("redis://[fe80::1%eth0]:6379", "a zone is not supported"),
        ("\u{feff}redis://h", "a byte-order mark"),
        ("REDLOCK_NODES=\"redis://h:1\"", "begins with NAME="),
        ("export REDLOCK_NODES=redis://h:1", "begins with NAME="),
        ("'redis://h'", "remove the quotation marks"),
        ("\"redis://h\"", "remove the quotation marks"),
        ("unix://me:secret@/run/redis.sock", "write user and password as ?user=USER"),
        ("unix:/me:secret@/run/redis.sock", "write user and password as ?user=USER"),
        ("redis://h<1>", "not a name or an address"),
    ] {
        let refused = Address::parse(url).map(|address| address.name).unwrap_err().to_string();
        assert!(refused.contains(why), "{url}: {refused}");
        assert!(refused.contains("redis://[user:password@]host"), "{url}: {refused}");
    }
}

#[test]
fn options_known_to_the_parser_are_accepted() {
    for url in [
        " redis://h:1 ",
        "redis://h:1/",
        "redis://h?protocol=resp3",
        "redis://me:p%40s%2Fs@[::1]:7001/0",
        "redis://me:p@ss@h:7001/0",
        "redis://me:p,ss@h:7001/0",
        "unix:///run/a,b",
        "unix:/run/a,b",
        "unix:/run/redis.sock",
        "valkey+unix:///s?db=1&user=me&pass=p&protocol=2",
        "valkeys://h",
    ] {
        assert!(Address::parse(url).is_ok(), "{url}: {:?}", Address::parse(url));
    }
}

#[test]
fn errors_and_debug_contain_no_secrets() {
    for url in [
        "redis://me:sesame@h:99999",
        "me:sesame@h",
        "redis://:ses@me:sesame@h/x",
        "unix:sesame@/x?pass=sesame",
        "http://h/?password=sesame",
        "redis://:sesame",
        "redis://me:sesame/0",
        "me:sesame@h://x",
        "redis://h?sesame=sesame",
        "redis://:x@h:1 sesame",
        "redis://h#sesame",
        "unix://me:sesame@/run/redis.sock",
        "unix:///me:sesame@/run/redis.sock",
        "unix:/me:sesame@/run/redis.sock",
        "unix://me:sesame/run/redis.sock?x=1",
        "redis://me:12/sesame",
        "redis://h:1/sesame@x",
        "redis://user%3Asesame%40host",
        "redis://user%3asesame%40host:6379/5",
        "redis://sesame%40host",
        "redis://:sesame%40host",
        "redis://user%3Asesame@host",
        "rediss://user%3Asesame%40host,redis://i",
        "unix://user%3Asesame%40/run/redis.sock",
        "unix:///user%3Asesame%40/run/redis.sock",
        "unix:/run/redis.sock?user=sesame&pass=%ff",
        "\"redis://me:sesame@h\"",
        "\u{feff}redis://me:sesame@h",
        "sesame",
        "open.sesame",
        "password=sesame",
        "password: sesame",
        "-----BEGIN sesame",
    ] {
        let refused = Address::parse(url).unwrap_err();
        assert!(!format!("{refused} {refused:?}").contains("sesame"), "{refused}");
    }
    for digits in ["redis://:12345678", "redis://me:12345678/0", "redis://:1234", "me:12345678"] {
        let refused = Address::parse(digits).unwrap_err();
        assert!(!format!("{refused} {refused:?}").contains("1234"), "{refused}");
    }
    for (place, shown) in [
        ("10.0.0.1:6379", "\"10.0.0.1:6379\""),
        ("10.0.0.1", "\"10.0.0.1\""),
        ("[::1]:6379", "\"[::1]:6379\""),
        ("localhost:6379", "\"localhost:6379\""),
    ] {
        let refused = Address::parse(place).unwrap_err().to_string();
        assert!(refused.starts_with(shown), "{refused}");
    }
    let address = Address::parse("redis://sesame:sesame@h").unwrap();
    assert!(!format!("{address:?}").contains("sesame"));
}
