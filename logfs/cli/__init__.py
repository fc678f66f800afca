"""The command line: what a shell, a script or fstab calls.

    main         the entry point: commands are loaded when they are called, errors end here
    helper       mount.logfs, as mount(8) calls it
    commands     one module a command
    terminal     streams, tables, the log, signals
    topics       topics by whoever has them: the files, the daemon, the mount
    sparking     --spark and --master              submit       the file for spark-submit
    failures     from any error to one line on stderr and an exit status
    parameters   what several commands take
    configfile   /etc/logfs/NAME.toml      meanings     a sentence of each command
    completion   what the Tab key offers   manual       the man pages, from the same source

and the work after one command: append (appending, lines, targets), cat (reading, copying), tail
(tailing, printing), status (overviews, activity), offsets (asking), du (diskuse), plan (planning),
verify (verifying), reindex (reindexing), export (exporting).

Nothing heavy is imported at the top of a module: ``logfs --help`` is as quick as Python and click.
"""
