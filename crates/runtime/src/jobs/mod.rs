//! The coordinator: a node that owns jobs' events, hands runs to workers, and leads when it is elected.
