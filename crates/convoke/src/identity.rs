/// Returns a unique name for this process: the host's name and a random number, such as `web-3-5f01ab`.
pub fn fresh_id() -> String {
    let host: String = host_name().chars().filter(|c| !c.is_control()).take(60).collect();
    format!("{}-{:06x}", if host.is_empty() { "node" } else { &host }, rand::random::<u32>() & 0xff_ffff)
}

/// Returns the name of this machine.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_another() {
        assert_ne!(fresh_id(), fresh_id());
        convoke_core::NodeId::new(fresh_id()).expect("may be the name of a node");
    }
}
