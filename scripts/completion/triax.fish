# Completion in fish for programs on triax, which say themselves what may follow: `PROGRAM complete
# WORDS`. For a program of your own, source this file and call `complete -c NAME -f -a '(__triax)'`.

function __triax
    set -l words (commandline -opc)
    for line in ($words[1] complete $words[2..] (commandline -ct) 2>/dev/null)
        if test "$line" = "<files>"
            __fish_complete_path (commandline -ct)
        else
            echo $line
        end
    end
end

for program in minigpt triax-llama triax-resnet
    complete -c $program -f -a '(__triax)'
end
