# docker buildx bake -f docker/bake.hcl [--push]: both images, for both platforms.
variable "VERSION" {
  default = "0.1.0"
}

group "default" {
  targets = ["mayflydb", "distroless"]
}

target "mayflydb" {
  dockerfile = "docker/Dockerfile"
  platforms  = ["linux/amd64", "linux/arm64"]
  tags       = ["mayflydb:${VERSION}", "mayflydb:latest"]
}

target "distroless" {
  inherits = ["mayflydb"]
  target   = "distroless"
  tags     = ["mayflydb:${VERSION}-distroless", "mayflydb:distroless"]
}
