"""Clusters of dask processes on this machine, quick to start, also again after they were killed."""

import multiprocessing

PACKAGES = ["distributed", "sklearn_crf.distributed", "sklearn_crf.estimators", "sklearn_crf.rtf"]


def processes(n_workers, n_threads=1):
    """A cluster of processes, each with so many threads."""
    import dask
    import distributed
    from distributed.utils import get_mp_context

    # Processes branch off one that has imported the packages: to start a worker anew takes seconds of a processor.
    dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"})
    get_mp_context()  # sets a list of packages of its own, once
    multiprocessing.get_context("forkserver").set_forkserver_preload(PACKAGES)
    return distributed.LocalCluster(
        n_workers=n_workers, threads_per_worker=n_threads, processes=True, dashboard_address=":0", memory_limit=0
    )
