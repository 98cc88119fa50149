// SPDX-License-Identifier: MIT
// kvstem: KV prefix caching for language model inference. This header brings everything but the
// reference decoder (reference/) and the formatters (fmt.hpp); include single headers to compile less.
#pragma once

#include "audit.hpp"
#include "config.hpp"
#include "errors.hpp"
#include "kv_traits.hpp"
#include "lease.hpp"
#include "namespace.hpp"
#include "page_pool.hpp"
#include "policy/lru.hpp"
#include "prefix_cache.hpp"
#include "radix_cache.hpp"
#include "radix_tree.hpp"
#include "token.hpp"
#include "version.hpp"
