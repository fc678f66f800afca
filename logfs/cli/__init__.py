"""The command line: what a shell, a script or fstab runs.

    main           the entry point: loads a command when it is called, and reports its error
    command_index  the module of each command, and the first sentence of its help
    mount_helper   mount.logfs, which mount(8) runs
    commands       one module for each command
    terminal       streams, tables, the log, signals
    escapes        text that is safe to print on a terminal
    failures       from any error to one line on stderr and an exit status
    parameters     options of several commands
    spark_options  --spark and --master           submit      the file for spark-submit
    mount_file     /etc/logfs/NAME.toml           completion  what the Tab key offers
    manual         the man pages, made from the help texts

Work that is too large for a command's module: append (append_target, append_files, timed_lines),
cat (address_output), tail (the package tail), plan (disk_forecast), verify (verify_data),
status (status_notes, daemon_activity), reindex (reindex_data), export (parquet_export), doctor
(diagnosis), group (group_tables), mirror (mirror_jobs), forward (forward_jobs). For several
commands: ``record_query`` chooses records, ``cluster_clients`` and ``running`` serve mirror and
forward, ``sharing`` shares work out to threads or to Spark. The manual has ``manual_page`` and
``manual_environment``.

Nothing heavy is imported at the top of a module: ``logfs --help`` is as quick as Python and click.
In every layer, what few calls of ``cat``, ``tail``, ``append``, ``offsets`` and ``status`` need is
imported inside of a function: what reads an object store or writes a log, the client of a daemon,
pools of threads, ``pathlib``, ``ctypes``. A regular expression that few calls need is a constant in
text, which ``re`` compiles when it is used. ``tests/cli/test_start.py`` has the list.
"""
