cd /tmp/hz/snap1; export PYTHONPATH=$PWD:$PWD/solvers:$PWD/replay:$PWD/datasets:$PWD/elastic PATH=/work/main/.venv/bin:$PATH BFTRAIN_QUICK=1 OMP_NUM_THREADS=1; cd /tmp/hz
