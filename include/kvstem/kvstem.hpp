// SPDX-License-Identifier: MIT
// kvstem: KV prefix caching for language model inference. One include for all that an engine on one
// thread needs; single headers compile faster.
//
// Left out, because they bring threads, strings or a package along: shared_radix_cache.hpp,
// picture.hpp, fmt.hpp; and the reference decoder with its batcher in reference/.
#pragma once

#include "audit.hpp"
#include "config.hpp"
#include "engine_concepts.hpp"
#include "errors.hpp"
#include "kv_traits.hpp"
#include "lease.hpp"
#include "namespace.hpp"
#include "page_pool.hpp"
#include "policy/lru.hpp"
#include "policy/policy.hpp"
#include "prefix_cache.hpp"
#include "prefix_cached_engine.hpp"
#include "radix_cache.hpp"
#include "radix_tree.hpp"
#include "sliding_window.hpp"
#include "token.hpp"
#include "version.hpp"
#include "window.hpp"
