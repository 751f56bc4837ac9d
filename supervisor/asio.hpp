// The one door to Boost.Asio: everything of it that supervisor/ and its users need, and no more.
// Each file that includes it costs half a minute to compile, so headers that can do without do.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace belljar::supervisor {

namespace asio = boost::asio;
template <class T>
using Awaitable = asio::awaitable<T>;

/// Completion token: the failure of an operation is a value, since it is ordinary.
inline constexpr auto kAsTuple = asio::as_tuple(asio::use_awaitable);

}  // namespace belljar::supervisor
