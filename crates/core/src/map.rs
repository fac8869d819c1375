//! Maps and sets whose keys nobody outside chooses, or chooses so that others could not guess them: they are hashed fast
//! rather than against an adversary.

use std::collections::{HashMap, HashSet};

use foldhash::fast::RandomState;

pub type Map<K, V> = HashMap<K, V, RandomState>;
pub type Set<T> = HashSet<T, RandomState>;
