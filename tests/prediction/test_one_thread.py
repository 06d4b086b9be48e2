"""One thread for numpy's products, asked for by several at a time."""

from threading import Barrier, Thread

from threadpoolctl import threadpool_info

from advisor.prediction.parallel import one_thread


def blas():
    return [each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"]


def test_it_holds_inside_and_not_after_however_deep():
    before = blas()
    with one_thread():
        with one_thread():
            assert set(blas()) <= {1}
        assert set(blas()) <= {1}
    assert blas() == before


def test_others_ask_for_it_while_one_holds_it():
    before, both = blas(), Barrier(2, timeout=60)

    def other():
        with one_thread():
            both.wait()

    with one_thread():
        thread = Thread(target=other)
        thread.start()
        both.wait()
        thread.join()
        assert set(blas()) <= {1}
    assert blas() == before
