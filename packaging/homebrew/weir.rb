# A template: the release workflow replaces VERSION, BASE and each SHA256_… and attaches the formula.
class Weir < Formula
  desc "Stream processing, TTL archives and migrations for DynamoDB, on a laptop"
  homepage "BASE"
  version "VERSION"
  license "Apache-2.0"

  on_macos do
    on_arm do
      url "BASE/releases/download/vVERSION/weir-dynamodb-darwin-arm64-VERSION.tgz"
      sha256 "SHA256_darwin_arm64"
    end
    on_intel do
      url "BASE/releases/download/vVERSION/weir-dynamodb-darwin-x64-VERSION.tgz"
      sha256 "SHA256_darwin_x64"
    end
  end
  on_linux do
    on_arm do
      url "BASE/releases/download/vVERSION/weir-dynamodb-linux-arm64-VERSION.tgz"
      sha256 "SHA256_linux_arm64"
    end
    on_intel do
      url "BASE/releases/download/vVERSION/weir-dynamodb-linux-x64-VERSION.tgz"
      sha256 "SHA256_linux_x64"
    end
  end

  # `weir` finds the functions in its own folder, so all programs must stay in one folder.
  def install
    libexec.install Dir["bin/*"]
    bin.write_exec_script libexec/"weir", libexec/"local-store"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/weir --version")
    system bin/"weir", "demo", "--votes", "3000", "--films", "600"
  end
end
