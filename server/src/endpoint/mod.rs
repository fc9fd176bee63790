//! A client of any server of this protocol, and the load that measures it.

pub(crate) mod http_endpoint;
pub(crate) mod load;
