"""Dask clusters of local processes that start, and restart after they were killed, quickly."""

import multiprocessing

PACKAGES = ["distributed", "sklearn_crf.distributed", "sklearn_crf.estimators", "sklearn_crf.rtf"]


def processes(n_workers, n_threads=1):
    """Return a cluster of processes with ``n_threads`` threads each."""
    import dask
    import distributed
    from distributed.utils import get_mp_context

    # Fork workers from a server process that has imported the packages, as imports take seconds.
    dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"})
    get_mp_context()  # the first call sets distributed's own list of packages, which the next line replaces
    multiprocessing.get_context("forkserver").set_forkserver_preload(PACKAGES)
    return distributed.LocalCluster(
        n_workers=n_workers, threads_per_worker=n_threads, processes=True, dashboard_address=":0", memory_limit=0
    )
