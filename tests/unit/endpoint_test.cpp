#include "core/base/endpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/address.h"
#include "core/base/error.h"
#include "core/base/host.h"
#include "core/base/listen.h"

namespace dtorch {
namespace {

using testing::HasSubstr;

TEST(InitUrlTest, ReadsTcp) {
  const auto url = parse_init_url("tcp://node-1.example:23456?rank=1&world_size=4");
  EXPECT_EQ(url.scheme, InitScheme::tcp);
  EXPECT_EQ(url.endpoint, (Endpoint{"node-1.example", 23456}));
  EXPECT_EQ(url.rank, 1);
  EXPECT_EQ(url.world_size, 4);
  EXPECT_EQ(parse_init_url("tcp://[fe80::1%eth0]:0").endpoint, (Endpoint{"fe80::1%eth0", 0}));
  EXPECT_EQ(parse_init_url("tcp://127.0.0.1:65535/").endpoint, (Endpoint{"127.0.0.1", 65535}));
}

TEST(InitUrlTest, ReadsPathsAndEnv) {
  EXPECT_EQ(parse_init_url("file:///tmp/a b").path, "/tmp/a b");
  EXPECT_EQ(parse_init_url("shared_filesystem:///nfs/x/?world_size=2").path, "/nfs/x");
  EXPECT_EQ(parse_init_url("shared_filesystem:///nfs/x/?world_size=2").world_size, 2);
  EXPECT_EQ(parse_init_url("env://").scheme, InitScheme::env);
}

TEST(InitUrlTest, RefusesMalformedOnesWithWhatIsExpected) {
  for (const char* text : {"",
                           "tcp",
                           "tcp:/a:1",
                           "tcp://",
                           "tcp://a",
                           "tcp://a:",
                           "tcp://:1",
                           "tcp://a:x",
                           "tcp://a:65536",
                           "tcp://a:-1",
                           "tcp://::1:5",
                           "tcp://[::1]",
                           "tcp://[::1:5",
                           "tcp://[a]:5",
                           "tcp://[]:5",
                           "tcp://u@a:5",
                           "tcp://a:5/x",
                           "http://a:5",
                           "TCP://a:5",
                           "file://",
                           "file:///",
                           "file:////",
                           "file://tmp/x",
                           "file:///tmp/\x1b[2J",
                           "shared_filesystem://x",
                           "env://x",
                           "tcp://a:5?rank",
                           "tcp://a:5?rank=",
                           "tcp://a:5?rank=-1",
                           "tcp://a:5?rank=1&rank=2",
                           "tcp://a:5?ranks=1",
                           "tcp://a:5?rank=2&world_size=2",
                           "tcp://a:5?world_size=0",
                           "tcp://a:5?rank=1x"}) {
    try {
      parse_init_url(text);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::spec) << text;
      EXPECT_THAT(error.what(), HasSubstr("init_method")) << text;
      EXPECT_NE(error.help(), "") << text;
    }
  }
}

TEST(EndpointTest, ReadsNamesAndBothKindsOfAddresses) {
  EXPECT_EQ(to_string(parse_endpoint("tcp://host.example:29500")), "host.example:29500");
  EXPECT_EQ(to_string(parse_endpoint("[::1]:7")), "[::1]:7");
  EXPECT_EQ(parse_endpoint("tcp://[fe80::2]:7").host, "fe80::2");
  for (const char* wrong : {"", "host", "host:", "host:x", "host:70000", "host:-1", ":1", "::1:5", "tcp://",
                            "[::1]x:5", "[::1]5", "a b:5", "a\n:5", "file:///x"}) {
    EXPECT_THROW(parse_endpoint(wrong), Error) << wrong;
  }
}

TEST(EndpointTest, NamesASchemeThatIsNotTcp) {
  for (const auto* wrong : {"file:///nope", "shared_filesystem:///nfs/job", "env://"}) {
    try {
      parse_endpoint(wrong);
      ADD_FAILURE() << wrong;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("is not tcp"), std::string::npos) << error.what();
    }
  }
}

TEST(AddressTest, LoopbackIsToldWithoutLookingUp) {
  for (const char* host :
       {"localhost", "a.localhost", "127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1", "0.0.0.0", "::"})
    EXPECT_TRUE(is_loopback(host)) << host;
  for (const char* host : {"", "192.0.2.1", "127.0.0.1.example.com", "::2", "localhost.example.com"})
    EXPECT_FALSE(is_loopback(host)) << host;
  EXPECT_TRUE(leads_to_loopback("localhost"));
  EXPECT_FALSE(leads_to_loopback("no-such-host.invalid"));
}

TEST(ListenTest, PortZeroIsAFreePortThatThenIsTaken) {
  const Listener first = listen_on({"127.0.0.1", 0}, Foreign::refuse);
  EXPECT_GT(first.port, 0);
  EXPECT_EQ(local_endpoint(first.socket.get()), (Endpoint{"127.0.0.1", first.port}));
  try {
    listen_on({"127.0.0.1", first.port}, Foreign::refuse);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::os_resource);
    EXPECT_THAT(error.what(), HasSubstr("(pid " + std::to_string(::getpid()) + ")"));
  }
}

bool bound_to_all(const Listener& listener) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  ::getsockname(listener.socket.get(), reinterpret_cast<sockaddr*>(&address), &length);
  const auto text = numeric_host(reinterpret_cast<sockaddr*>(&address), length);
  return text == "::" || text == "0.0.0.0";
}

// On Debian the machine's own name is 127.0.1.1 to itself, and something else to all others.
TEST(ListenTest, ANameIsHeardOnAllInterfaces) {
  EXPECT_TRUE(bound_to_all(listen_on({host_name(), 0}, Foreign::listen_everywhere)));
  LookupFailure failure;
  if (resolve(host_name(), 0, 0, failure)) {
    EXPECT_TRUE(bound_to_all(listen_on({host_name(), 0}, Foreign::refuse)));
  }
  EXPECT_FALSE(bound_to_all(listen_on({"localhost", 0}, Foreign::refuse)));
}

TEST(ListenTest, AnAddressOfAnotherMachineIsRefusedOrAllAreHeard) {
  EXPECT_THROW(listen_on({"192.0.2.1", 0}, Foreign::refuse), Error);
  EXPECT_THROW(listen_on({"no-such-host.invalid", 0}, Foreign::refuse), Error);
  EXPECT_TRUE(bound_to_all(listen_on({"192.0.2.1", 0}, Foreign::listen_everywhere)));
}

}  // namespace
}  // namespace dtorch
