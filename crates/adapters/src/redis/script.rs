//! Scripts: operations that must be one step on the server. Their text is in `scripts/`, by the verb that they
//! implement.

use redis::Cmd;

pub(super) struct Script {
    text: &'static str,
    hash: String,
}

impl Script {
    fn new(text: &'static str) -> Self {
        Script { text, hash: redis::Script::new(text).get_hash().to_owned() }
    }

    pub(super) fn by_hash(&self, keys: &[&str], args: &[&[u8]]) -> Cmd {
        command("EVALSHA", &self.hash, keys, args)
    }

    pub(super) fn by_text(&self, keys: &[&str], args: &[&[u8]]) -> Cmd {
        command("EVAL", self.text, keys, args)
    }
}

fn command(verb: &str, script: &str, keys: &[&str], args: &[&[u8]]) -> Cmd {
    let mut command = redis::cmd(verb);
    command.arg(script).arg(keys.len());
    keys.iter().for_each(|key| {
        command.arg(key);
    });
    args.iter().for_each(|arg| {
        command.arg(arg);
    });
    command
}

macro_rules! scripts {
    ($($name:ident = $file:literal $(after $before:literal)?),* $(,)?) => {
        $(pub(super) static $name: std::sync::LazyLock<Script> = std::sync::LazyLock::new(|| {
            Script::new(concat!(
                $(include_str!(concat!("scripts/", $before, ".lua")),)?
                include_str!(concat!("scripts/", $file, ".lua"))
            ))
        });)*
    };
}

scripts! {
    ACK = "ack" after "fields_by_name",
    ACK_READ = "ack_read",
    BACKLOG = "backlog" after "fields_by_name",
    CACHE_GET = "cache/get",
    CACHE_OUTDATE = "cache/outdate",
    CACHE_PUT = "cache/put",
    CLOSE = "close",
    ELECT = "elect",
    ENDS = "ends" after "fields_by_name",
    ENROLL = "enroll",
    FINISH = "finish",
    FORGET = "forget" after "fields_by_name",
    LEAVE = "leave",
    MESH_HEARTBEAT = "mesh/heartbeat",
    MESH_LEAD = "mesh/lead",
    MESH_LEAVE = "mesh/leave",
    MESH_NODES = "mesh/nodes",
    MESH_NUMBER = "mesh/number",
    MESH_RENEW = "mesh/renew",
    MESH_RESIGN = "mesh/resign",
    MESH_SWEEP = "mesh/sweep",
    FORGET_CONSUMER = "forget_consumer",
    READ = "read",
    READERS = "readers" after "fields_by_name",
    RENEW = "renew",
    RESIGN = "resign",
    ROSTER = "roster",
    TAKE_OVER = "take_over" after "fields_by_name",
    TRIM = "trim" after "fields_by_name",
}
