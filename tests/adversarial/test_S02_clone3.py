"""S02 (moby #42681, flatpak CVE-2021-41133)"""

from adversarial.case import NO_FILTER, Case, main


class S02(Case):
    """clone3, whose flags no filter can read, makes a namespace; and threads still work without it."""

    control = {**NO_FILTER, "namespaces": {"nested_user": True}}
    control_opens = {"clone3", "clone3 with a user namespace"}
    back_ends_of_control = ("modern",)  # The other is made by a filter of clone3.

    def program(self):
        return """
            import threading
            ran = []
            threads = [threading.Thread(target=ran.append, args=(number,)) for number in range(8)]
            for thread in threads: thread.start()
            for thread in threads: thread.join()
            assert sorted(ran) == list(range(8))
            say({"clone3": in_child(lambda: clone3(0)),
                 "clone3 with a user namespace": in_child(lambda: clone3(0x10000000))})
        """

    verdicts = {"clone3": "ENOSYS", "clone3 with a user namespace": "ENOSYS"}


if __name__ == "__main__":
    main()
