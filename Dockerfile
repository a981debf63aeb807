# syntax=docker/dockerfile:1
# For a CPU:   docker build -t neocog . && docker run --rm neocog
# For a GPU:   docker build -t neocog-cuda --build-arg EXTRA=[cuda13] . \
#              && docker run --rm --gpus all neocog-cuda read data/samples --device cuda
# The page:    docker compose up (compose.yaml)
# Your files:  docker run --rm -v "$PWD:/in:ro" neocog read /in/photo.jpg
FROM python:3.12-slim

# opencv-python needs these libraries of the system.
RUN apt-get update \
    && apt-get install -y --no-install-recommends libgl1 libglib2.0-0 \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /neocog
COPY . .
# With a GPU, CuPy also needs the CUDA libraries, which its [ctk] extra brings.
ARG EXTRA=
RUN pip install --no-cache-dir ".${EXTRA}" \
    && case "${EXTRA}" in \
         *cuda12*) pip install --no-cache-dir "cupy-cuda12x[ctk]" ;; \
         *cuda13*) pip install --no-cache-dir "cupy-cuda13x[ctk]" ;; \
       esac

RUN useradd --create-home reader && install -d -o reader /data/corrections
USER reader
# Of `neocog serve` without a certificate, on its usual port; a run of another command is healthy as it is.
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s CMD ! grep -qzx serve /proc/1/cmdline || \
    python -c "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/health', timeout=4)"
ENTRYPOINT ["neocog"]
CMD ["read", "data/samples"]
