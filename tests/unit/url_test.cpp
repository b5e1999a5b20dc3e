#include "core/comm/url.h"

#include <gtest/gtest.h>

#include "core/base/error.h"

namespace dtorch {
namespace {

TEST(UrlTest, ReadsTcp) {
  const auto url = parse_init_url("tcp://node-1.example:23456?rank=1&world_size=4");
  EXPECT_EQ(url.scheme, InitScheme::tcp);
  EXPECT_EQ(url.host, "node-1.example");
  EXPECT_EQ(url.port, 23456);
  EXPECT_EQ(url.rank, 1);
  EXPECT_EQ(url.world_size, 4);
  EXPECT_EQ(parse_init_url("tcp://[fe80::1%eth0]:0").host, "fe80::1%eth0");
  EXPECT_EQ(parse_init_url("tcp://127.0.0.1:65535").port, 65535);
}

TEST(UrlTest, ReadsPathsAndEnv) {
  EXPECT_EQ(parse_init_url("file:///tmp/a b").path, "/tmp/a b");
  EXPECT_EQ(parse_init_url("shared_filesystem:///nfs/x/?world_size=2").path, "/nfs/x");
  EXPECT_EQ(parse_init_url("shared_filesystem:///nfs/x/?world_size=2").world_size, 2);
  EXPECT_EQ(parse_init_url("env://").scheme, InitScheme::env);
}

TEST(UrlTest, RefusesMalformedOnesWithWhatIsExpected) {
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
                           "tcp://u@a:5",
                           "tcp://a:5/x",
                           "http://a:5",
                           "TCP://a:5",
                           "file://",
                           "file:///",
                           "file://tmp/x",
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
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
      EXPECT_EQ(error.help().rfind("expected ", 0), 0U) << error.help();
    }
  }
}

TEST(UrlTest, WritesEndpointsWithBracketsForIpv6) {
  EXPECT_EQ(endpoint_text("a", 1), "a:1");
  EXPECT_EQ(endpoint_text("::1", 1), "[::1]:1");
}

}  // namespace
}  // namespace dtorch
